"""The canary: a small job with a known slow rank, by which the whole chain is tried in production.

Its name is reserved. A job of that name has no series of its own on any page, and counts for no
alert, budget or sum; the watch judges it as any other job and exports whom it named.
"""

from __future__ import annotations

import re

NAME = "rankscope-canary"
"""What the job is called within its namespace, and the CronJob that starts it."""

RANKS = 4

SLOW_RANK = 2

SYMPTOM = "gpu_compute"
"""What step times show of the slow rank: it computes longer than its peers."""

# The Jobs of a CronJob are called after it and the minute in which they were due.
_RESERVED = re.compile(rf"(?:.*/)?{NAME}(?:-\d+)?")


_RUN = re.compile(rf"({NAME})-\d+$")


def is_canary(job_id: str) -> bool:
    """Return True if a job_id is one of canaries, in whatever namespace."""
    return NAME in job_id and _RESERVED.fullmatch(job_id) is not None


def without_run(job_id: str) -> str:
    """Return the job_id that all runs of a canary have in common."""
    return _RUN.sub(r"\1", job_id)
