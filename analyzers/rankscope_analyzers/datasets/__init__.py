"""Which shards of a dataset match its manifest, and which were read for a bad loss."""
