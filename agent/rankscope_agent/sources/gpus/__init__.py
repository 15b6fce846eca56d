"""The GPUs of this node: what is read of them, and from where."""
