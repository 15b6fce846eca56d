"""Which phases the job of phases.py has, for those who read its records without torch."""

from __future__ import annotations

STEPS = 14
"""Of each phase."""

SLOW_RANK = {"slow_buffers": 0}  # rank 0 sends the buffers that the others wait for; else rank 1

PHASES = (
    "healthy",
    "slow_compute",
    "slow_data",
    "slow_buffers",
    "loss_reduced",
    "manual",
    "manual_async",
    "functional",
    "barrier",
    "accumulated",
    "accumulated_no_sync",
    "evaluated",
)
