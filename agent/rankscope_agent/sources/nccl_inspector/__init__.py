"""NCCL Inspector (the profiler plugin of NCCL 2.28 and newer): its output directories."""
