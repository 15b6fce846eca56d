"""What logs in hand say: NCCL's, PyTorch's timeouts, a failed job's, the kernel's."""
