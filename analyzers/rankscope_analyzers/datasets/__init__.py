"""Which shards of a dataset are as its manifest has them, and which were read for a bad loss."""
