"""Reading the rings that probes write: format, files, and what their records add up to."""
