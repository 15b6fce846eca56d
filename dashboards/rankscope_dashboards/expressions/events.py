"""PromQL over what happens to ranks now and then, recorded: every rank has series of it.

Alerts that name a job's owner contain twice what they are about. Reading such a counter of all
ranks takes as long as all of a job's other rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.contract.metrics import reported, training
from rankscope_agent.contract.model import Metric
from rankscope_dashboards.expressions.promql import by, happened, worst

FAILED_WRITES = "job:rankscope_checkpoint_write_failures:ranks30m"
FAILED_LOADS = "job:rankscope_checkpoint_load_failures:ranks30m"
"""Ranks whose writing, or loading, failed within half an hour."""

NONFINITE_LOSSES = "job:rankscope_nonfinite_losses:increase15m"


def recorded(counter: Metric, window: str, subject: str) -> tuple[tuple[str, str], str]:
    """Return a record that is needed, with its expression, and what grew within a window.

    Args:
        counter: an agent's.
        window: such as "15m".
        subject: what has the counter, for the name of the record.
    """
    name = f"{subject}:{counter.name.removesuffix('_total')}:above0"
    above = worst(f"{counter.name} > 0", "node", *counter.labels)
    return (name, above), happened(counter, window, now=name)


def records() -> Iterator[tuple[str, str]]:
    """Yield names and expressions in their order."""
    for name, counter in (
        (FAILED_WRITES, training.CHECKPOINT_WRITE_FAILURES),
        (FAILED_LOADS, reported.CHECKPOINT_LOAD_FAILURES),
    ):
        needed, failed = recorded(counter, "30m", "rank")
        yield needed
        yield name, f"count {by('job_id')} ({worst(failed, 'job_id', 'rank')})"
    needed, grown = recorded(reported.NONFINITE_LOSSES, "15m", "rank")
    yield needed
    yield NONFINITE_LOSSES, worst(grown, "job_id")
