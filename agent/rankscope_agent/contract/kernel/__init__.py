"""What the kernel log says: pure parsers of its lines and their incidents, part of the contract."""
