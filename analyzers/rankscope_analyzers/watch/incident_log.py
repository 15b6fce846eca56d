"""One line of JSON for each change of an incident, in an append-only file.

The file is authoritative: a watch that starts, or takes over, reads what was announced before it
announces anything, so that no pair of an incident and its change occurs twice, whatever state of
its own was saved. If the previous watch had a file on another node, its saved state lists what was
announced. A truncated line, as after a full disk, is ended and not counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import blake2s
from pathlib import Path
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.text import finite_json
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.watch.incident_history import (
    GONE,
    Change,
    Event,
    could_see_ends,
    key_of,
    ranks_of,
    running,
    spans_of,
)

SCHEMA = 1
"""Version of a line; to be incremented if a member is removed or changes its meaning."""

CHANGES: Mapping[Change, str] = {
    "opened": "opened",
    "back": "opened",
    "culprit changed": "changed",
    "cause changed": "changed",
    "over": "closed",
    "gone": "closed",
}
"""Names of the changes of an incident."""

REASONS: Mapping[Change, str] = {"over": "over", "gone": "job_gone"}
"""Why an incident was closed: it ended, or its job is gone and the fault may remain."""

MOST_READ_BYTES = 64 << 20
"""Bytes read at the end of the file when starting: a hundred thousand changes."""

MOST_OPEN = 65_536
"""Incidents that are remembered as open; those that opened first are dropped first."""

ANNOUNCED, HANDED = "announced", "handed"
"""The part of a watch's state with what was announced, including by other watches."""

SUPERSEDED = "superseded"
"""Member of this part: up to which number the file is about jobs that others followed since."""

MOST_KEPT = 512
"""Open incidents that a watch on another node learns about, the newest: usually 64 KiB."""

MOST_RANKS = 64
"""Ranks and nodes of a line; further ones are counted."""

LONGEST_TEXT = 2000


class LogError(Exception):
    """The log cannot be read or written; the message says why."""


@dataclass(frozen=True, slots=True)
class Logged:
    """What was announced of an open incident: its identifier, and the number of changes."""

    incident: str
    changes: int
    kind: str
    ranks: tuple[int, ...]


class IncidentLog:
    """Writes the changes of incidents.

    Args:
        path: of the file; its directory must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logged: dict[tuple[str, str], Logged] | None = None
        self._elsewhere: tuple[int, dict[tuple[str, str], Logged]] = (0, {})
        self._handed: dict[tuple[str, str], Logged] = {}
        self._superseded = 0
        self.sequence = 0

    def write(self, events: Sequence[Event], now: float) -> Sequence[Mapping[str, Any]]:
        """Write a line for each change that was not yet announced; return what was written.

        Args:
            events: of one evaluation.
            now: Unix time of it.

        Raises:
            LogError: the log cannot be read or written; the same changes can be written later.
        """
        try:
            logged = self._known()
            lines = list(self._lines(events, dict(logged), now))
            if lines:
                _append(self._path, "".join(f"{_text(line)}\n" for line in lines).encode())
        except OSError as error:
            raise LogError(visible(f"{self._path}: {error.strerror or error}")) from error
        for line in lines:
            self._take(logged, line)
        return lines

    def missed(
        self, reports: Sequence[JobReport], is_gone: Callable[[str], bool] = lambda _: False
    ) -> Sequence[Event]:
        """Return what was not announced: open incidents, and ends while no watch was running.

        Args:
            reports: of jobs; one that could not see an incident ends none.
            is_gone: returns True for a job that is gone, for those without a report.

        Raises:
            LogError: the file cannot be read.
        """
        try:
            logged = dict(self._known())
        except OSError as error:
            raise LogError(visible(f"{self._path}: {error.strerror or error}")) from error
        events: list[Event] = []
        ends: dict[str, set[str]] = {}
        for report in reports:
            active = {key_of(one): one for one in running(report)}
            if could_see_ends(report):
                ends[report.job_id] = set(active)
            events += [
                _opened(report, key, one)
                for key, one in active.items()
                if (report.job_id, key) not in logged
            ]
        return [*events, *_ended(logged, ends), *_gone(logged, reports, is_gone)]

    def after(self, sequence: int) -> Iterator[Mapping[str, Any]]:
        """Yield the lines after a sequence number.

        Raises:
            LogError: the file cannot be read.
        """
        try:
            yield from (one for one in _read(self._path) if one["sequence"] > sequence)
        except OSError as error:
            raise LogError(visible(f"{self._path}: {error.strerror or error}")) from error

    def forget(self) -> None:
        """Read the file again before the next announcement: another watch may have written it."""
        self._logged = None

    def kept(self) -> Any:
        """Return the state to save: the last number, and open incidents."""
        known = self._logged
        if known is None:
            known = {**self._handed, **self._elsewhere[1]}
        newest = list(known.items())[-MOST_KEPT:]
        return {
            "sequence": max(self.sequence, self._elsewhere[0]),
            SUPERSEDED: self._superseded,
            "open": [
                [*key, one.incident, one.changes, one.kind, spans_of(one.ranks)]
                for key, one in newest
            ],
        }

    def restore(self, kept: Any) -> None:
        """Continue from saved state if the file has less; from the file alone if it is None.

        Raises:
            TypeError, ValueError, KeyError: it is invalid.
        """
        self._elsewhere, self._handed, self._logged = (0, {}), {}, None
        self._superseded = 0
        if kept is not None:
            logged, handed = _rows(kept["open"]), _rows(kept.get(HANDED, ()))
            self._elsewhere, self._handed = (int(kept["sequence"]), logged), handed
            self._superseded = int(kept.get(SUPERSEDED, 0))

    def _known(self) -> dict[tuple[str, str], Logged]:
        if self._logged is None:
            logged: dict[tuple[str, str], Logged] = {}
            self.sequence = 0
            for line in _read(self._path):
                self._take(logged, line)
                if line["sequence"] <= self._superseded:
                    logged.clear()
            number, elsewhere = self._elsewhere
            if number > self.sequence:  # another watch announced more, in its own file
                self.sequence, logged = number, dict(elsewhere)
            self._logged = {**self._handed, **logged}
        return self._logged

    def _take(self, logged: dict[tuple[str, str], Logged], line: Mapping[str, Any]) -> None:
        self.sequence = max(self.sequence, line["sequence"])
        key = (line["job_id"], line["fault"])
        logged.pop(key, None)
        if line["change"] != "closed":
            ranks = tuple(line["ranks"])
            logged[key] = Logged(line["incident"], line["number"], line["kind"], ranks)
        while len(logged) > MOST_OPEN:
            del logged[next(iter(logged))]

    def _lines(
        self, events: Iterable[Event], logged: dict[tuple[str, str], Logged], now: float
    ) -> Iterator[dict[str, Any]]:
        sequence = self.sequence
        for event in events:
            known, change = logged.get((event.job_id, event.key)), CHANGES[event.change]
            if known is None and change != "opened":
                continue  # it was never announced as open
            ranks = _shortened(event.ranks)
            if known is not None and change == "opened":
                if (known.kind, known.ranks) == (event.kind, ranks):
                    continue  # it was announced before this watch started
                change = "changed"
            sequence += 1
            incident = known.incident if known else _identifier(event, sequence, now)
            number = known.changes + 1 if known else 1
            yield {
                "schema": SCHEMA,
                "sequence": sequence,
                "incident": incident,
                "number": number,
                "change": change,
                "time": _time(now),
                "job_id": event.job_id,
                "fault": event.key,
                "kind": event.kind,
                "ranks": ranks,
                "summary": visible(event.sentence, LONGEST_TEXT),
                **({"reason": REASONS[event.change]} if change == "closed" else {}),
                **_details(event.incident),
            }
            if change == "closed":
                logged.pop((event.job_id, event.key), None)
            else:
                logged[event.job_id, event.key] = Logged(incident, number, event.kind, ranks)


def _rows(kept: Iterable[Any]) -> dict[tuple[str, str], Logged]:
    return {
        (str(job_id), str(fault)): Logged(str(incident), int(changes), str(kind), ranks_of(spans))
        for job_id, fault, incident, changes, kind, spans in kept
    }


def _opened(report: JobReport, key: str, incident: Incident) -> Event:
    sentence = f"opened: {incident.summary}"
    ranks = incident.where.ranks
    return Event(report.job_id, incident.cause.kind, "opened", sentence, key, ranks, incident)


def _ended(
    logged: Mapping[tuple[str, str], Logged], ends: Mapping[str, Collection[str]]
) -> Iterator[Event]:
    """Yield the incidents that a report could see, and did not."""
    for (job_id, key), one in logged.items():
        if job_id in ends and key not in ends[job_id]:
            yield Event(job_id, one.kind, "over", "over: it was not seen again", key, one.ranks)


def _gone(
    logged: Mapping[tuple[str, str], Logged],
    reports: Sequence[JobReport],
    is_gone: Callable[[str], bool],
) -> Iterator[Event]:
    """Yield the incidents of jobs that are gone."""
    present = {report.job_id for report in reports}
    absent = {job_id for job_id, _ in logged if job_id not in present}
    gone = frozenset(filter(is_gone, absent))
    for (job_id, key), one in logged.items():
        if job_id in gone:
            yield Event(job_id, one.kind, "gone", GONE, key, one.ranks)


def _details(incident: Incident | None) -> dict[str, Any]:
    if incident is None:
        return {}
    cost = incident.cost
    return {
        "severity": incident.severity,
        "nodes": _shortened(incident.where.nodes),
        "rank_count": len(incident.where.ranks),
        "node_count": len(incident.where.nodes),
        "since": _time(incident.since_unix_seconds),
        "until": _time(incident.until_unix_seconds),
        "lost_fraction": None if cost is None else cost.lost_fraction,
        "lost_gpu_hours": None if cost is None else cost.gpu_hours,
        "confidence": incident.confidence,
        "action": visible(incident.action, LONGEST_TEXT),
        "runbook": incident.runbook,
    }


def _shortened(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(values[:MOST_RANKS])


def _identifier(event: Event, sequence: int, now: float) -> str:
    of = f"{event.job_id}\n{event.key}\n{sequence}\n{now!r}"
    return blake2s(of.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _time(unix_seconds: float | None) -> str | None:
    """Return a moment, or that it is unknown: clocks of nodes can show anything."""
    if unix_seconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(unix_seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds")


def _text(line: Mapping[str, Any]) -> str:
    return finite_json.text(line, separators=(",", ":"))


def _append(path: Path, text: bytes) -> None:
    """Append to a file, after the end of a line; nothing of it remains if that fails."""
    with open(path, "ab+", opener=_private) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            text = text if file.read(1) == b"\n" else b"\n" + text
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def _read(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the complete lines at the end of a file."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - MOST_READ_BYTES))
            for text in file:
                line = _line(text)
                if line is not None:
                    yield line
    except FileNotFoundError:
        return


def _line(text: bytes) -> Mapping[str, Any] | None:
    try:
        return line_of(untrusted_json.read(text))
    except ValueError:
        return None


def line_of(line: Any) -> Mapping[str, Any] | None:
    """Parse a line of the log; return None if it is not one."""
    if not isinstance(line, dict) or line.get("schema") != SCHEMA:
        return None
    names = ("incident", "job_id", "fault", "kind", "change", "time", "summary")
    numbers = ("sequence", "number")
    whole = all(isinstance(line.get(name), str) for name in names)
    counted = all(type(line.get(name)) is int for name in numbers)
    return line if whole and counted and isinstance(line.get("ranks"), list) else None


def _private(path: str, flags: int) -> int:
    """Open a file that others cannot read, like the state of a watch."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CREAT, 0o600)
