"""Reads the running kernel's log from where the node offers it; `kernel` says what it means."""
