"""Flight Recorder dumps of PyTorch 2.3 (format 1.4) in the form of later ones.

Format 1.4 (torch/csrc/distributed/c10d/TraceUtils.h of 2.3.1) names a process group by its number
in the process, which other ranks may have given to another group, but lists its ranks. It has no
data types, and one counter per group for collectives and messages together.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

VERSION = "1.4"

SHOWN_RANKS = 8

_MESSAGE = re.compile(r"nccl:(?:send|recv) ")
MAX_MEMBERS = 4_000_000
"""Ranks of all groups together; the largest jobs have a tenth of that."""

_SAME = (
    "record_id",
    "op_id",
    "profiling_name",
    "state",
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "duration_ms",
    "input_sizes",
    "output_sizes",
    "frames",
    "retired",
)
"""Fields that both formats have."""

_BATCH = "nccl:coalesced"
"""The name of a batch, of collectives or of messages."""


class MixedGroupError(ValueError):
    """A group has collectives and messages, so that its collectives are not numbered alike."""


class _Early(NamedTuple):
    """An entry, and those of its fields that tell its kind."""

    group: int
    operation: str
    fields: Mapping[str, Any]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> _Early:
        return cls(_integer(entry["pg_id"]), entry["profiling_name"], entry)


def as_later(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a dump of format 1.4 with the fields of format 2.

    Raises:
        MixedGroupError: its collectives cannot be compared with those of other ranks.
        LookupError, TypeError, ValueError: it lacks a field, or has what no dump has.
    """
    groups = _groups(value["pg_config"])
    entries = [_Early.of(entry) for entry in value["entries"]]
    messaging = _messaging(entries)
    return {
        "version": VERSION,
        "pg_config": {name: {"ranks": str(list(ranks))} for name, ranks in groups.values()},
        "entries": [_entry(entry, groups, messaging) for entry in entries],
    }


def _groups(config: Mapping[int, Sequence[int]]) -> Mapping[int, tuple[str, tuple[int, ...]]]:
    """Return the name and the ranks of each group, the same on all of its ranks.

    Ranks make all groups that they share in the same order, whatever numbers these have.
    """
    if sum(len(ranks) for ranks in config.values()) > MAX_MEMBERS:
        raise ValueError("the ranks of groups, of which there are too many")
    found, made = {}, Counter[tuple[int, ...]]()
    for number in sorted(config):
        ranks = tuple(_integer(rank) for rank in config[number])
        made[ranks] += 1
        digest = hashlib.sha256(repr(ranks).encode()).hexdigest()[:8]
        found[number] = f"{digest}.{made[ranks]}", ranks
    return found


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("a number that is none")
    return value


def _messaging(entries: Iterable[_Early]) -> frozenset[int]:
    """Return the groups whose ranks send messages.

    Raises:
        MixedGroupError: they also have collectives.
    """
    single = [entry for entry in entries if entry.operation != _BATCH]
    sent = {one.group for one in single if _MESSAGE.match(one.operation)}
    common = {one.group for one in single if not _MESSAGE.match(one.operation)}
    if sent & common:
        raise MixedGroupError(
            "PyTorch 2.3 numbers messages and collectives of a group together, so that those of"
            " different ranks cannot be compared; compare stacks (py-spy dump), or update PyTorch"
        )
    return frozenset(sent)


def _entry(
    entry: _Early,
    groups: Mapping[int, tuple[str, tuple[int, ...]]],
    messaging: frozenset[int],
) -> Mapping[str, Any]:
    name, ranks = groups.get(entry.group, ("", ()))  # without a name it is left out
    is_message, number = entry.group in messaging, entry.fields["seq_id"]
    return {
        **{field: entry.fields[field] for field in _SAME if field in entry.fields},
        "process_group": (name, _described(ranks)),
        "collective_seq_id": 0 if is_message else number,
        "p2p_seq_id": number if is_message else 0,
        "is_p2p": is_message,
        "input_dtypes": (),
        "output_dtypes": (),
    }


def _described(ranks: Sequence[int]) -> str:
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"group of ranks {ranks[0]}-{ranks[-1]}"
    shown = ", ".join(map(str, ranks[:SHOWN_RANKS]))
    return f"group of ranks {shown}{' and others' if len(ranks) > SHOWN_RANKS else ''}"
