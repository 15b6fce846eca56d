"""Reads the running kernel's log from the node's sources; `contract.kernel` parses it."""
