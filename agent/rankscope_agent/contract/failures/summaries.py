"""Reads what launchers print when a job has ended: torchrun's table, and single lines of others.

torch/distributed/elastic/multiprocessing/errors/__init__.py writes the table; its `Root Cause` is
the failure with the earliest time stamp, which is a victim if the first rank to fail wrote none.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable

from rankscope_agent.contract.failures.signs import RankEnd
from rankscope_agent.contract.log_text.prefixes import MAX_RANK

MAX_TABLE_LINES = 4000
"""Lines kept of the traceback of one rank in torchrun's table."""

_SECTION = re.compile(r"\s*(Root Cause|Failures|Other Failures)\b[^:]{0,60}:\s*$")
_ENTRY = re.compile(r"\s*\[\d{1,7}\]:\s*$")
_FIELD = re.compile(r"\s{0,4}(time|host|rank|exitcode|error_file|traceback|msg)\s{0,12}: ?(.*)")
_RANK = re.compile(r"(\d{1,7}) \(local_rank: (\d{1,7})\)")
_EXIT = re.compile(r"(-?\d{1,4}) \(pid: ")


class TableReader:
    """Reads torchrun's table from the lines of one writer.

    Args:
        source: name of the log.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._root = False
        self._entry: RankEnd | None = None
        self._in_table = False

    @property
    def is_open(self) -> bool:
        """Return True if the following lines belong to a table."""
        return self._in_table

    def feed(self, words: str, attempt: int) -> RankEnd | None:
        """Process a line; return the entry that it completes."""
        section = _SECTION.match(words)
        if section is not None:
            self._root, self._in_table = section[1] == "Root Cause", True
            return self.finish(keep_open=True)
        if not self._in_table:
            return None
        if words.startswith(("=====", "*****")):
            return self.finish()
        if words.startswith("-----"):
            return self.finish(keep_open=True)
        if _ENTRY.match(words):
            ended = self.finish(keep_open=True)
            self._entry = RankEnd(self._source, attempt, self._root)
            return ended
        if self._entry is not None:
            _take(self._entry, words)
        return None

    def finish(self, *, keep_open: bool = False) -> RankEnd | None:
        """Return the entry being read, if it says which rank ended."""
        entry, self._entry, self._in_table = self._entry, None, keep_open
        return entry if entry is not None and entry.rank is not None else None


def _take(entry: RankEnd, words: str) -> None:
    field = _FIELD.match(words)
    if entry.lines or field is None:
        # A traceback continues to the end of its entry and is indented by two more columns.
        if entry.lines and len(entry.lines) < MAX_TABLE_LINES:
            entry.lines.append(words.removeprefix("  "))
        return
    reader = FIELDS.get(field[1])
    if reader is not None:
        reader(entry, field[2])


def _take_time(entry: RankEnd, text: str) -> None:
    try:
        entry.ended_at = calendar.timegm(
            time.strptime(text.strip()[:19].replace("_", " "), "%Y-%m-%d %H:%M:%S")
        )
    except (ValueError, OverflowError):
        entry.ended_at = None


def _take_rank(entry: RankEnd, text: str) -> None:
    match = _RANK.match(text)
    if match is not None and int(match[1]) < MAX_RANK:
        entry.rank, entry.local_rank = int(match[1]), int(match[2])


def _take_exit(entry: RankEnd, text: str) -> None:
    match = _EXIT.match(text)
    entry.exit_code = int(match[1]) if match else None


def _take_host(entry: RankEnd, text: str) -> None:
    entry.host = text.strip()[:255]


def _take_traceback(entry: RankEnd, text: str) -> None:
    entry.lines.append(text)


FIELDS: dict[str, Callable[[RankEnd, str], None]] = {
    "time": _take_time,
    "host": _take_host,
    "rank": _take_rank,
    "exitcode": _take_exit,
    "traceback": _take_traceback,
}

_SIGNAL_NAMES = {
    "Killed": -9,
    "SIGKILL": -9,
    "Segmentation fault": -11,
    "SIGSEGV": -11,
    "Aborted": -6,
    "SIGABRT": -6,
    "Bus error": -7,
    "SIGBUS": -7,
    "Terminated": -15,
    "SIGTERM": -15,
    "Out Of Memory": -9,
}
_ENDS = (
    # torch/distributed/elastic/multiprocessing/api.py: a local rank
    (
        re.compile(
            rb"failed \(exitcode: (?P<code>-?\d{1,4})\) local_rank: (?P<local>\d{1,7}) \(pid: "
        ),
        True,
    ),
    # torch/multiprocessing/spawn.py
    (
        re.compile(
            rb"process (?P<local>\d{1,7}) terminated with (?:exit code (?P<code>\d{1,3})|"
            rb"signal (?P<name>SIG\w+))"
        ),
        True,
    ),
    # orterun's and prterun's help texts
    (
        re.compile(
            rb"process rank (?P<rank>\d{1,7}) with PID \d+ on node \S{1,255} exited on signal "
            rb"(?P<signal>\d{1,2})"
        ),
        False,
    ),
    # ompi/runtime/ompi_mpi_abort.c; the code is in the next line
    (re.compile(rb"MPI_ABORT was invoked on rank (?P<rank>\d{1,7})\b"), False),
    # src/srun/libsrun/launch.c: a task
    (
        re.compile(
            rb"srun: error: \S{1,255}: task (?P<rank>\d{1,7}): (?:Exited with exit code "
            rb"(?P<code>\d{1,3})|(?P<name>[A-Z][\w ]{1,30}))"
        ),
        False,
    ),
)


def read_end(words: bytes) -> tuple[int, bool, int] | None:
    """Read a launcher's line: rank, whether it is a local rank, exit code."""
    for pattern, local in _ENDS:
        match = pattern.search(words)
        if match is None:
            continue
        found = {name: text.decode() for name, text in match.groupdict().items() if text}
        rank = int(found.get("local", found.get("rank", "0")))
        if "code" in found:
            code = int(found["code"])
        elif "signal" in found:
            code = -int(found["signal"])
        else:
            code = _SIGNAL_NAMES.get(found.get("name", ""), 1)
        return (rank, local, code) if rank < MAX_RANK else None
    return None
