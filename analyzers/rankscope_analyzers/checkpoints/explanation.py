"""`rankscope explain checkpoint`: a directory's checkpoints for people and programs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope_analyzers.checkpoints import checkpoint, directory_report, interval, storage_kind
from rankscope_analyzers.checkpoints.checkpoint import Checkpoint
from rankscope_analyzers.checkpoints.directory_report import DirectoryReport
from rankscope_analyzers.checkpoints.interval import Interval
from rankscope_analyzers.checkpoints.problems import Problem
from rankscope_analyzers.text import wording
from rankscope_analyzers.text.sanitize import name, visible

MOST_LISTED = 20
"""Checkpoints, and problems of one, that are shown; all of them are in the JSON."""

HEADINGS = ("state", "step", "size", "files", "age", "lacks", "checkpoint")


@dataclass(frozen=True, slots=True)
class Rates:
    """Inputs of a recommended interval.

    Args:
        write_seconds: how long training stands still for one save.
        between_failures_seconds: mean time between failures of the whole job.
    """

    write_seconds: float
    between_failures_seconds: float

    def interval(self) -> Interval:
        """Return the recommended interval."""
        return interval.recommended(self.write_seconds, self.between_failures_seconds)


class CheckpointExplanation:
    """What a directory of checkpoints shows."""

    def __init__(self, report: DirectoryReport, rates: Rates | None, now: float) -> None:
        self._report, self._rates, self._now = report, rates, now

    def as_object(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        report, good = self._report, self._report.last_good
        return {
            "directory": str(report.root),
            "last_good": None if good is None else self._as_object(good),
            "checkpoints": [self._as_object(one) for one in report.checkpoints],
            "pointers": [
                {"file": pointer.path, "names": pointer.target, "problem": what or None}
                for pointer, what in report.pointers
            ],
            "storage": self._storage_object(),
            "content_verified": report.deep and all(one.has_checksums for one in self._whole()),
            "structures_not_compared": report.skipped_structures,
            "listed_checksums": report.digests,
            "problems_of_no_checkpoint": [_object(problem) for problem in report.unplaced],
            "files": report.files,
            "not_all_listed": report.is_cut,
            "unreadable_directories": dict(report.unread),
            "median_seconds_between": report.seconds_between,
            "recommended_interval": self._interval_object(),
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        report = self._report
        yield from self._verdict()
        if report.checkpoints:
            yield ""
            yield from self._table()
        yield from self._problems()
        means = self._means() if report.checkpoints else ()
        if rest := [*means, *self._limits(), *self._frequency()]:
            yield from ("", *rest)

    def _as_object(self, one: Checkpoint) -> dict[str, Any]:
        return {
            "name": one.name,
            "layout": one.group.layout,
            "state": one.state,
            "step": None if one.step is None else {"number": one.step[0], "unit": one.step[1]},
            "modified_unix_seconds": one.group.modified,
            "age_seconds": self._now - one.group.modified,
            "bytes": one.group.size,
            "files": len(one.group.files),
            "holds": sorted(one.parts),
            "lacks": list(one.lacks),
            "has_checksums": one.has_checksums,
            "unknown_classes": list(one.foreign),
            "problems": [_object(problem) for problem in one.problems],
        }

    def _storage_object(self) -> dict[str, str] | None:
        storage = self._report.storage
        if storage is None:
            return None
        return {"mount": storage.mounted_at, "type": storage.kind, "reach": storage.reach}

    def _interval_object(self) -> dict[str, float] | None:
        if self._rates is None:
            return None
        found = self._rates.interval()
        return {
            "write_seconds": self._rates.write_seconds,
            "mean_seconds_between_failures": self._rates.between_failures_seconds,
            "young_seconds": found.young,
            "daly_seconds": found.daly,
            "lost_share": found.lost_share,
        }

    def _whole(self) -> Sequence[Checkpoint]:
        return [one for one in self._report.checkpoints if one.state == "complete"]

    def _verdict(self) -> Iterator[str]:
        report, good = self._report, self._report.last_good
        if not report.checkpoints:
            yield f"no checkpoint is recognised in {report.files} file{'s' * (report.files != 1)}"
            return
        if good is None:
            yield "no checkpoint is good: a run that fails now starts from the beginning"
            return
        at = "" if good.step is None else f"{good.step[1]} {good.step[0]}, "
        yield (
            f"last good checkpoint: {at}{name(good.name)}"
            f" ({self._age(good)} old, {wording.value(good.group.size, 'bytes')})"
        )
        later = report.checkpoints[: report.checkpoints.index(good)]
        bad = [one for one in later if one.state in {"interrupted", "damaged", "unverified"}]
        if bad:
            verbs = "ones cannot be used or were" if len(bad) > 1 else "one cannot be used or was"
            yield f"{len(bad)} later {verbs} not read: see below"
        if good.lacks:
            yield f"It holds no {', '.join(good.lacks)} under a name that is known."

    def _age(self, one: Checkpoint) -> str:
        return wording.age(max(self._now - one.group.modified, 0.0))

    def _table(self) -> Iterator[str]:
        shown = self._report.checkpoints[:MOST_LISTED]
        rows = [HEADINGS, *(self._row(one) for one in shown)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield f" {'  '.join(cells)}".rstrip()
        more = len(self._report.checkpoints) - len(shown)
        if more:
            yield f" and {more} earlier ones"

    def _row(self, one: Checkpoint) -> tuple[str, ...]:
        return (
            one.state.replace("_", " "),
            "-" if one.step is None else f"{one.step[0]}{' ep' * (one.step[1] == 'epoch')}",
            wording.value(one.group.size, "bytes"),
            str(len(one.group.files)),
            self._age(one),
            _lacks(one),
            name(one.name),
        )

    def _problems(self) -> Iterator[str]:
        listed: list[tuple[str, Sequence[Problem]]] = [
            (f"{one.name}: {checkpoint.MEANINGS[one.state]}", one.problems)
            for one in self._report.checkpoints
            if one.problems or one.state != "complete"
        ]
        stale = directory_report.pointer_problems(self._report)
        if stale:
            listed.append(("pointers", stale))
        if self._report.unplaced:
            listed.insert(0, ("files in the list that no checkpoint holds", self._report.unplaced))
        for heading, problems in listed[:MOST_LISTED]:
            yield ""
            yield visible(heading)
            for problem in problems[:MOST_LISTED]:
                yield visible(f"  {problem.file} {problem.detail} [{problem.kind}]")
            if len(problems) > MOST_LISTED:
                yield f"  and {len(problems) - MOST_LISTED} more, which --json lists"

    def _means(self) -> Iterator[str]:
        """Yield what the storage means for the checkpoints, and how they were examined."""
        report = self._report
        if report.storage is not None:
            meaning = storage_kind.MEANINGS[report.storage.reach]
            yield visible(f"{report.storage.mounted_at} ({report.storage.kind}) is {meaning}.")
        yield self._depth()

    def _limits(self) -> Iterator[str]:
        """Yield what was not seen."""
        report = self._report
        if report.skipped_structures:
            yield (
                f"{report.skipped_structures} shards' structures were not compared with their"
                " contents: --deep compares all."
            )
        if report.is_cut:
            yield "There are more files than are listed here: give a directory further down."
        for folder, reason in list(report.unread.items())[:MOST_LISTED]:
            yield visible(f"{folder or '.'} cannot be listed: {reason}")

    def _depth(self) -> str:
        without = [one for one in self._whole() if not one.has_checksums]
        if not self._report.deep and self._report.digests:
            count = self._report.digests
            listed = f"{count} file{'s' * (count != 1)} with the list of checksums"
            return f"Sizes and structures were compared, and {listed} (--deep reads all)."
        if not self._report.deep:
            return "Sizes and structures were compared, contents were not (--deep does)."
        if without:
            listed = ", ".join(name(one.name) for one in without[:3])
            return (
                f"Not all files of {len(without)} ({listed}{', ...' * (len(without) > 3)}) have"
                " checksums: changed bytes in those cannot be recognised without a list of"
                " checksums (--checksums)."
            )
        return "Sizes, structures and checksums were compared."

    def _frequency(self) -> Iterator[str]:
        between = self._report.seconds_between
        if between is not None:
            yield f"Checkpoints end {wording.age(between)} apart (median)."
        if self._rates is None:
            return
        found = self._rates.interval()
        yield (
            f"Recommended: one every {wording.age(found.daly)} (Daly; Young:"
            f" {wording.age(found.young)}), with saves of"
            f" {wording.duration(self._rates.write_seconds)} and a failure every"
            f" {wording.age(self._rates.between_failures_seconds)}: saves and repeated work then"
            f" take {found.lost_share:.1%} of the time."
        )


def _object(problem: Problem) -> dict[str, str]:
    return {"kind": problem.kind, "file": problem.file, "detail": problem.detail}


def _lacks(one: Checkpoint) -> str:
    """Return what a checkpoint lacks, if all of it could be read."""
    if one.state in {"complete", "damaged"}:
        return ",".join(one.lacks) or "-"
    return "unknown"


def explain(
    directory: Path, *, deep: bool, digests: Mapping[str, str] | None, rates: Rates | None
) -> CheckpointExplanation:
    """Examine a directory and return what it shows.

    Raises:
        OSError: it cannot be listed.
    """
    report = directory_report.examine(directory, deep=deep, digests=digests)
    return CheckpointExplanation(report, rates, time.time())
