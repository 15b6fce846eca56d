"""PyTorch's Flight Recorder: fetched from worker servers, validated and kept in sampled windows."""
