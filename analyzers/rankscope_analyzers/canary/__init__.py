"""Tests the whole chain in production: whether the known slow rank of a small job is named."""
