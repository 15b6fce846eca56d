"""How much of what was received could not be read, by job: pure."""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_agent.contract.job_names import is_job_id

NO_JOB = ""
"""Stands for the job of rows and values that do not say which it is."""

Unread = Mapping[str, int]
"""Number of unreadable rows or values by job."""


def job_named(name: object) -> str:
    """Return the name of a job, or that it is unknown."""
    return name if isinstance(name, str) and is_job_id(name) else NO_JOB
