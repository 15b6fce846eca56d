"""Network interfaces of the node: what they are, what they count, and whose network this is."""
