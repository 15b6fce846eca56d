"""Which steps the jobs of frameworks.py have, for those who read their records without torch."""

from __future__ import annotations

STEPS = 48
FAIL_AT = 20
"""The step in which the first attempt of the elastic jobs breaks."""

BEFORE_EXEC = 12
"""Steps of the program that gives way to another."""

OVERFLOW_EVERY = 5
"""Steps: more often than in earnest, so that a short job has several."""
