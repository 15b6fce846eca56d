"""What log files show: NCCL's state, PyTorch's timeouts, why a job failed, kernel events."""
