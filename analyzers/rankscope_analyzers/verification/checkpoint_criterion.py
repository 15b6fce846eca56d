"""The criterion about checkpoints: the first one was written."""

from __future__ import annotations

from rankscope_agent.contract.metrics import training
from rankscope_analyzers.text.name_lists import ranks_named
from rankscope_analyzers.text.wording import clock
from rankscope_analyzers.verification.evidence import Evidence
from rankscope_analyzers.verification.judgement import (
    Judgement,
    broken,
    met,
    not_applicable,
    not_yet,
)

NAME = "checkpoint"


def checkpoint(evidence: Evidence) -> Judgement:
    """Judge whether the first checkpoint was written."""
    expected = "a first checkpoint that was written without an error"
    failed = evidence.of_ranks(training.CHECKPOINT_WRITE_FAILURES)
    bad = sorted(rank for rank, series in failed.items() if series.last > 0)
    if bad:
        count = sum(failed[rank].last for rank in bad)
        seen = f"{count:.0f} writes failed on {ranks_named(bad)}"
        return broken(seen, expected, "docs/runbooks/RankscopeCheckpointFailing.md")
    written = evidence.of_ranks(training.CHECKPOINT_LAST_SUCCESS)
    if written:
        last = max(series.last for series in written.values())
        return met(f"written by {ranks_named(written)}, the newest at {clock(last)}")
    if NAME not in evidence.settings.required:
        return not_applicable("none was begun; --require checkpoint waits for the first")
    return not_yet("none was written so far", expected)
