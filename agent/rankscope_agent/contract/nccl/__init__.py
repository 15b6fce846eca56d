"""What NCCL's and PyTorch's log lines say: a pure parser and its verdict, part of the contract."""
