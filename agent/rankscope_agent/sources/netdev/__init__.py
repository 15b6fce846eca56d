"""The node's network interfaces: their properties and counters, and whose network they are in."""
