"""The sources of a node: one package per source, with its collector."""
