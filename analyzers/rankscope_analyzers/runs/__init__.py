"""Records of what a run was, and how two of them differ."""
