"""The canary: a small job with a known slow rank that tests the whole chain in production.

Its name is reserved. A job of that name has no series of its own on any page and does not count in
any alert, budget or sum; the watch judges it like any other job and exports which rank it named.
"""

from __future__ import annotations

import re

NAME = "rankscope-canary"
"""The job's name within its namespace, and the name of the CronJob that starts it."""

RANKS = 4

SLOW_RANK = 2

SYMPTOM = "gpu_compute"
"""What step times show about the slow rank: it computes longer than its peers."""

# The Jobs of a CronJob are named after it, followed by the minute for which they were scheduled.
_RESERVED = re.compile(rf"(?:.*/)?{NAME}(?:-\d+)?")


_RUN = re.compile(rf"({NAME})-\d+$")


def is_canary(job_id: str) -> bool:
    """Return True if a job_id is that of a canary, in any namespace."""
    return NAME in job_id and _RESERVED.fullmatch(job_id) is not None


def without_run(job_id: str) -> str:
    """Return the job_id that all runs of a canary share."""
    return _RUN.sub(r"\1", job_id)
