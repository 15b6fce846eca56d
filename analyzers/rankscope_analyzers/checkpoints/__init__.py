"""Checkpoints on disk: which are whole, which are not and why, without unpickling any of them."""
