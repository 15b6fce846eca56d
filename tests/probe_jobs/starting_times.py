"""How long the ranks of starting.py take, for those who read their rings without torch."""

from __future__ import annotations

LATE_SECONDS = 0.6
FIRST_STEP_SECONDS = 0.4
