"""Reads the running kernel's log from where the node offers it; `contract.kernel` parses it."""
