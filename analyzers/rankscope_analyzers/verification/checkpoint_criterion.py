"""The criterion on checkpoints: the first one was written, and is whole."""

from __future__ import annotations

from rankscope_agent.contract.metrics import pods, training
from rankscope_analyzers.checkpoints.checkpoint import MEANINGS
from rankscope_analyzers.checkpoints.directory_report import DirectoryReport
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.name_lists import named, ranks_named
from rankscope_analyzers.text.wording import clock
from rankscope_analyzers.verification.evidence import Evidence
from rankscope_analyzers.verification.identifiers import CHECKPOINT
from rankscope_analyzers.verification.judgement import (
    Judgement,
    broken,
    met,
    not_applicable,
    not_yet,
    unknown,
)

SHOWN_PROBLEMS = 3


EXPECTED = "a first checkpoint that was written without an error and is complete"


def checkpoint(evidence: Evidence) -> Judgement:
    """Judge whether the first checkpoint was written, and whether the newest can be loaded."""
    failed = evidence.of_ranks(training.CHECKPOINT_WRITE_FAILURES)
    bad = sorted(rank for rank, series in failed.items() if series.last > 0)
    if bad:
        count = sum(failed[rank].last for rank in bad)
        seen = f"{count:.0f} writes failed on {ranks_named(bad)}"
        return broken(seen, EXPECTED, runbooks.command("RankscopeCheckpointFailing"))
    if isinstance(evidence.checkpoints, str):
        return unknown(evidence.checkpoints, EXPECTED, "name a directory that can be read here")
    if evidence.checkpoints is not None:
        return _verified(evidence.checkpoints, _began(evidence))
    written = evidence.of_ranks(training.CHECKPOINT_LAST_SUCCESS)
    if written:
        last = clock(max(series.last for series in written.values()))
        seen = f"written by {ranks_named(written)}, the newest at {last}, and not verified"
        return unknown(seen, EXPECTED, "name its directory by --checkpoint-dir")
    if CHECKPOINT not in evidence.settings.required:
        return not_applicable("none has begun; --require checkpoint waits for the first")
    return not_yet("none has been written yet", EXPECTED)


def _began(evidence: Evidence) -> float | None:
    """Return when the job's processes began, if it has not been seen to write a checkpoint."""
    if evidence.of_ranks(training.CHECKPOINT_LAST_SUCCESS):
        return None
    started = evidence.of_ranks(pods.RANK_STARTED)
    return min((series.last for series in started.values()), default=None)


def _none_yet(seen: str, found: DirectoryReport) -> Judgement:
    """Return `not yet`, or `unknown` if a checkpoint may be where nothing could be listed."""
    if not found.unread:
        return not_yet(seen, EXPECTED)
    closed = named([folder or "." for folder in found.unread], "directory", "directories")
    why = f"{seen}, as far as is known: {closed} of {found.root} cannot be listed"
    return unknown(why, EXPECTED, "run it as a user who may read them")


def _verified(found: DirectoryReport, began: float | None) -> Judgement:
    """Judge the newest checkpoint of a directory, or the previous one while it is being written.

    Args:
        found: what the directory has.
        began: Unix time before which a checkpoint is of an earlier run, None if that is unknown.
    """
    done = [one for one in found.checkpoints if one.state != "being_written"]
    if not done:
        being = "the first is being written" if found.checkpoints else "none has been written yet"
        return _none_yet(being, found)
    newest = done[0]
    if began is not None and newest.group.modified < began:
        at = clock(newest.group.modified)
        return _none_yet(f"{newest.name} of {at} is from before the job's processes began", found)
    why = "; ".join(f"{one.file} {one.detail}" for one in newest.problems[:SHOWN_PROBLEMS])
    seen = f"{newest.name} is {MEANINGS[newest.state]}{f': {why}' if why else ''}"
    if newest.state == "complete":
        return met(seen)
    remedy = f"rankscope explain checkpoint {found.root}"
    if newest.state == "unverified":
        return unknown(seen, EXPECTED, remedy)
    return broken(seen, EXPECTED, remedy)
