"""Prefixes that launchers, runtimes and log pipelines put before a line, and their time stamps.

Each is declared here once, as a pattern without groups; parsers combine those that they need.
`split` removes them from a line and returns its writer; it keeps the white space after them, which
distinguishes frames of a traceback from its last line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache

MAX_RANK = 1 << 20
"""Ranks at or above this are garbage: 64 times the largest known jobs."""

DATE_TIME = rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d"
"""`2026-02-15T17:37:45`, with slashes or a space as some frameworks write it."""

RFC3339 = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
"""The time of a CRI line, of kubectl logs --timestamps and of journalctl's format `short-iso`."""

STREAM = rb"std(?:out|err)"
"""The name of a stream, in several prefixes."""

CRI_STREAM = STREAM + rb" [PF](?::\S{0,64})? "
"""The stream and the tags of a CRI line, the first of which is P (partial) or F (full): kubelet
cri-client/pkg/logs/logs.go parseCRILog."""

KUBECTL = rb"\[pod/[^\]\n]{1,200}\]"
"""kubectl logs --prefix."""

SERVICE, SERVICE_END = rb"[a-z][\w.-]{1,100}", rb" {1,20}\| "
"""docker compose: the service's name, and the separator."""

RAY = rb"\([A-Za-z_]\w{0,60} pid=\d{1,10}[^)\n]{0,80}\)"
"""Ray: the name of the actor or task, its process and possibly its node's address."""

MPI_JOB = rb"\[(?:[\w.-]{1,255}@)?\d{1,10},(?:mpirank:)?"
MPI_STREAM = rb"(?:,[\w.-]{1,255})?\]<" + STREAM + rb">:"
"""Open MPI's --tag-output: job and stream, with the rank between them. Open MPI 5 names its prterun
before the job; SageMaker adds a word before the rank and the host after it."""

CTIME = rb"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
"""`Sun Nov 29 02:11:04 2026`, which Open MPI's --timestamp-output puts before its tag."""

PYTORCH, TAG_END = rb"\[rank", rb"\]:"
"""PyTorch's exception hook since 2.2, and torchrun: a global rank follows, then `TAG_END`."""

TORCHRUN_ROLE = rb"[a-zA-Z_]{1,40}"
"""torchrun --tee: the role after a bracket; a local rank follows, then `TAG_END`."""

RANK = rb"\d{1,7}"
"""A rank in a prefix."""

TASK_PADDING = rb"(?:P\d{1,4} )? {0,6}"
"""srun --label, src/api/step_io.c: `%*d: `, and `P%u %*d: ` with components. The width is that of
the highest task, so from eleven tasks on, those below 10 follow blanks."""

HOST = rb"[\w.-]{1,255}"
"""A host name."""

PROGRAM = rb"[\w.@-]{1,255}\[\d{1,10}\]: "
"""A program and its process, as syslog and journald write them."""

SYSLOG_TIME = rb"[A-Z][a-z]{2} {1,2}[\d ]{0,3}[\d:.]{2,16}"
"""`Feb 15 17:37:45`, optionally with a fraction: without year and zone, so not a usable time."""

ISO_TIME = DATE_TIME + rb"\S{0,32}"
"""A time with its fraction and zone, in any of these formats."""

QUOTED = rb"> "
"""A quoted line, in a mail or a ticket."""

WRITER = HOST + rb" " + PROGRAM
"""What follows the time in syslog files and in journalctl's formats `short` and `short-iso`."""

_PREFIX = re.compile(
    rb"(?P<stamp>" + RFC3339 + rb")[ \t](?:" + CRI_STREAM + rb"|" + WRITER + rb")?"
    + rb"|(?P<pod>" + KUBECTL + rb") "
    + rb"|(?P<service>" + SERVICE + rb")" + SERVICE_END
    + rb"|(?P<actor>" + RAY + rb") "
    + rb"|(?:" + CTIME + rb")?" + MPI_JOB + rb"(?P<mpi>" + RANK + rb")" + MPI_STREAM + rb" ?"
    + rb"|" + PYTORCH + rb"(?P<rank>" + RANK + rb")" + TAG_END + rb" ?"
    + rb"|\[(?P<role>" + TORCHRUN_ROLE + rb")(?P<local>" + RANK + rb")" + TAG_END + rb" ?"
    + rb"|" + TASK_PADDING + rb"(?P<task>" + RANK + rb"): "
    + rb"|" + SYSLOG_TIME + rb" " + WRITER
    + rb"|" + QUOTED
)  # fmt: skip
MAX_PREFIXES = 8

_STAMP = re.compile(rb"(" + DATE_TIME + rb")(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")

MAX_UNIX_SECONDS = 4_102_444_800
"""Start of the year 2100; later times, and times before 1970, are invalid: the last hours of the
year 9999 west of UTC have no date in UTC."""

MAX_KNOWN_SECONDS = 256
"""Seconds whose Unix time is kept: lines that follow each other share one, in each of many logs."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The part of a line before its own words.

    Args:
        writer: distinguishes the writers of one log.
        rank: the rank that a tag names; None without one.
        local: whether the tag contains a local rank of its node.
        time: Unix time of the line; None if it has none.
    """

    writer: bytes
    rank: int | None
    local: bool
    time: float | None


NO_PREFIX = Prefix(b"", None, False, None)


def split(line: bytes) -> tuple[Prefix, bytes]:
    """Return a line's prefix, and its own words with their indentation."""
    offset, end = 0, 0
    found: dict[str, bytes] = {}
    for _ in range(MAX_PREFIXES):
        match = _PREFIX.match(line, offset)
        if match is None:
            break
        found.update({name: text for name, text in match.groupdict().items() if text})
        offset = end = match.end()
    if not end:
        return NO_PREFIX, line
    stamp = found.pop("stamp", None)
    time = None if stamp is None else unix_seconds(stamp)
    rank, local = _rank(found)
    return Prefix(b"|".join(found.values()), rank, local, time), line[end:]


def _rank(found: dict[str, bytes]) -> tuple[int | None, bool]:
    """Return the rank from the most reliable tag, and whether it is a local rank."""
    for name in ("rank", "mpi", "local", "task"):
        if name in found and int(found[name]) < MAX_RANK:
            return int(found[name]), name == "local"
    return None, False


def unix_seconds(text: bytes) -> float | None:
    """Return the first time in a text as Unix seconds; None without one, or an impossible one.

    Without a zone, UTC is assumed, which is good for differences within one log only.
    """
    match = _STAMP.search(text)
    if match is None:
        return None
    second = _second(match[1])
    if second is None:
        return None
    fraction = int(match[2].ljust(9, b"0")) / 1e9 if match[2] else 0.0
    moment = second + fraction - _offset(match[3])
    return moment if 0 <= moment < MAX_UNIX_SECONDS else None


@lru_cache(maxsize=MAX_KNOWN_SECONDS)
def _second(text: bytes) -> float | None:
    """Return the Unix time of a `DATE_TIME` in UTC; None if there is no such day or time."""
    parts = (text[:4], *(text[at : at + 2] for at in (5, 8, 11, 14, 17)))
    year, month, day, hour, minute, second = (int(part) for part in parts)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    return moment.timestamp()


def _offset(zone: bytes | None) -> int:
    """Return the number of seconds by which a zone is ahead of UTC."""
    if zone is None or zone == b"Z":
        return 0
    digits = zone[1:].replace(b":", b"")
    ahead = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return ahead if zone.startswith(b"+") else -ahead
