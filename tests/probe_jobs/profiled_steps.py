"""Which steps the job of profiled.py has, for those who read its traces without torch."""

from __future__ import annotations

STEPS = 40
SLOW_RANK = 1
SLOW_SECONDS = 0.08
