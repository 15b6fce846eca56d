"""Reads the rings that probes write: format, files and totals of their records."""
