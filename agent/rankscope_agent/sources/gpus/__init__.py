"""The GPUs of this node: readings and their sources."""
