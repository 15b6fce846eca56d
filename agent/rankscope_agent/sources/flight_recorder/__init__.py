"""PyTorch's Flight Recorder: fetched from worker servers, checked, and kept in sampled windows."""
