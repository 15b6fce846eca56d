"""Fuzzing of every parser that reads what a pod, a peer or a person wrote."""
