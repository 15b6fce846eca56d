"""PyTorch's profiler traces and Flight Recorder dumps, read into step records."""
