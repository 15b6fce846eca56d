"""Run records, and the differences between two of them."""
