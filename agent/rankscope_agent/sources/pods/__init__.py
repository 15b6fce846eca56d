"""Which pods run on this node, what they are part of, and which devices they hold."""
