"""Where the GPU time of jobs went: productive, lost by cause, unobserved, unexplained."""
