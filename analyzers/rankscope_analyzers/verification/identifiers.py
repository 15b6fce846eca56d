"""The criteria of a job that runs well, by the names that options and results give them."""

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
"""Without these nothing is proven, so that they cannot be left out."""
