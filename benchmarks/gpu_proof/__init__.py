"""Proof on one NVIDIA GPU of what is otherwise tested with fakes: see `run`."""
