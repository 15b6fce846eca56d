"""What NCCL Inspector (the profiler plugin of NCCL 2.28 and newer) writes into its directory."""
