"""Proof on one NVIDIA GPU of what elsewhere is tested on fakes: see `run`."""
