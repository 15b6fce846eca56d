"""GPUs that differ from their peers, and Xid errors as incidents."""
