"""What the Flight Recorder dumps of a job show together: who did not enter which collective.

The files are those that PyTorch writes (`TORCH_FR_DUMP_TEMP_FILE`, pickles, one per rank, with
names that end in the rank) or that its debug server returns (JSON). They are never unpickled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from rankscope_agent.contract import flight_dump
from rankscope_agent.contract.flight_dump import MAX_FILE_BYTES, DumpError, FlightDump
from rankscope_agent.contract.stalls import RankStall, groups_of
from rankscope_analyzers.hangs.suspects import Blame, blame
from rankscope_analyzers.intake.log_files import LogError, chunks
from rankscope_analyzers.text.name_lists import ranks_named
from rankscope_analyzers.text.sanitize import visible

MAX_RANKS = 200_000
"""Ten times the largest jobs: a larger number in a name is a time or a process ID."""

_NAMED = re.compile(r".*rank[_.=-]?(\d{1,7})(?!\d)", re.IGNORECASE)
"""The number after the word in a file's name, wherever it is: `rank_3_of_node12`."""

_LAST = re.compile(r"(?<!\d)(\d{1,7})\D*$")
"""The last number of another name, before its extension: PyTorch appends the rank."""

_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9]*$")


class FlightExplanation:
    """What the dumps of one job show.

    Raises:
        LogError: a file cannot be read, is not a dump, or does not name its rank.
    """

    def __init__(self, files: Sequence[str]) -> None:
        dumps: dict[int, FlightDump] = {}
        for name in files:
            rank = _rank(name)
            if rank in dumps:
                raise LogError(f"{name}: there are two dumps of rank {rank}")
            dumps[rank] = _dump(name)
        self._skipped = sum(dump.skipped for dump in dumps.values())
        size = _world_size(dumps)
        self._absent = sorted(set(range(size)) - dumps.keys())
        self._stalls = {rank: _stall(rank, size, dump) for rank, dump in dumps.items()}

    @property
    def blame(self) -> Blame:
        """Return the ranks that the others wait for."""
        return blame(self._stalls)

    def as_object(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        found = self.blame
        return {
            "suspects": list(found.ranks),
            "summary": found.sentence,
            "ranks": sorted(self._stalls),
            "ranks_without_dump": self._absent,
            "entries_skipped": self._skipped,
            "groups": [
                {"rank": rank, "name": group.name, "description": group.description}
                | {"enqueued": group.enqueued}
                for rank, stall in sorted(self._stalls.items())
                for group in stall.groups
            ],
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        found = self.blame
        yield visible(f"{found.sentence or 'no rank waits in a collective'}.")
        if found.ranks:
            yield f"Suspected: {ranks_named(found.ranks)}."
        if self._absent:
            yield f"There is no dump of {ranks_named(self._absent)}."
        if self._skipped:
            yield f"{self._skipped} entries contradict themselves and were left out."
        for rank, stall in sorted(self._stalls.items()):
            reached = ", ".join(
                f"{group.description or group.name}: {group.enqueued}" for group in stall.groups
            )
            yield visible(f"rank {rank}: newest collective of each group: {reached or 'none'}")


def _rank(name: str) -> int:
    stem = PurePath(name).name.removesuffix(".gz")
    found = _NAMED.match(stem) or _LAST.search(_EXTENSION.sub("", stem))
    rank = int(found[1]) if found else MAX_RANKS
    if rank >= MAX_RANKS:
        raise LogError(f"{name}: its name does not end in its rank, as nccl_trace_rank_3 does")
    return rank


def _dump(name: str) -> FlightDump:
    body = bytearray()
    for chunk in chunks(name):
        body += chunk
        if len(body) > MAX_FILE_BYTES:
            raise LogError(f"{name}: more than {MAX_FILE_BYTES >> 20} MiB, no dump is so large")
    try:
        return flight_dump.read(bytes(body))
    except DumpError as error:
        raise LogError(f"{name}: no Flight Recorder dump that is read: {error}") from None


def _world_size(dumps: dict[int, FlightDump]) -> int:
    """Return the number of ranks of the largest group named, at least the number of dumps."""
    sizes = (len(ranks) for dump in dumps.values() for ranks in dump.groups.values())
    return max(max(sizes, default=0), max(dumps, default=-1) + 1)


def _stall(rank: int, size: int, dump: FlightDump) -> RankStall:
    groups = groups_of(dump)
    newest = (call.created_unix_seconds for group in groups for call in group.calls)
    return RankStall(
        job_id="dump",
        rank=rank,
        world_size=size,
        taken_unix_seconds=max(newest, default=0.0),
        quiet_seconds=0.0,
        stepped=True,
        state="",
        cpu_seconds=None,
        groups=groups,
        recorder="",
        stack=(),
        no_stack="a dump holds no stack of now",
    )
