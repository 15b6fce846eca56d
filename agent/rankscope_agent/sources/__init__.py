"""What a node can be asked: one room per source, with the collector that reads it."""
