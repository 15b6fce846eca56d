"""Pure parsers of kernel log lines and their incidents; part of the contract."""
