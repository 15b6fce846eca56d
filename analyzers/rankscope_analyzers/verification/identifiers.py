"""The criteria for a job that runs well, by their names in options and results."""

from __future__ import annotations

CHECKPOINT = "checkpoint"

CRITERIA = (
    "world-size",
    "nccl-start",
    "transport",
    "channels",
    "steps",
    "utilization",
    "straggler",
    CHECKPOINT,
)

ALWAYS = frozenset({"world-size", "steps", "straggler"})
"""Without these nothing is proven, so they cannot be left out."""
