"""Seeded training jobs with known faults, a scorer, and detectors to compare on them."""
