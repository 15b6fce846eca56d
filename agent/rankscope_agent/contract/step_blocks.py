"""The binary form of `/api/v1/steps`: what agents write and readers expect, byte by byte.

    head    8s magic, u16 version, u16 reserved, u32 length; so many bytes of JSON
    block   u32 rows, u32 reserved; then each column of `NUMBERS`: as many float64
    ...
    tail    u32 0, u32 length; so many bytes of JSON

All numbers are little-endian, unknown ones are NaN; counters are exact below 2**53. The head says
what does not change from row to row: `{"node", "columns", "timing_sources", "rings"}`, where a ring
is an object of `RING`. The tail says where to go on: `{"next", "left_out", "truncated"}`, with one
number for each ring of the head, and of which ranks there was no room for older records. An answer
without its tail was cut off, and moves no cursor.

A reader that accepts `MEDIA_TYPE` names in `after` the rings that it follows, each with the number
of the record that it wants next. A ring that is not named, or whose number lies beyond its end (it
was made anew, or the number is somebody else's), is answered from `since` on, with `whole` true.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from rankscope_agent.contract.model import STEP_COLUMNS

MEDIA_TYPE = "application/vnd.rankscope.steps"
"""In Accept of who reads it, in Content-Type of who sends it; all others get JSON."""

MAGIC, VERSION = b"RKSTEPS\n", 1
"""The version counts changes of meaning; columns and members that are added do not."""

HEAD = struct.Struct("<8sHHI")
BLOCK = struct.Struct("<II")

OF_A_RING = frozenset(
    ("job_id", "rank", "node", "gpu", "dp_group", "tp_group", "pp_stage", "timing_source")
)
"""Columns of a record that its ring has, and the one that is text."""

RING_INDEX, TIMING_INDEX = "ring", "timing"
"""Columns that say which ring of the head, and which of its `timing_sources`, a row is of."""

RECORD_NUMBERS = tuple(name for name in STEP_COLUMNS if name not in OF_A_RING)
"""Columns that are numbers of the record itself."""

NUMBERS = (RING_INDEX, TIMING_INDEX, *RECORD_NUMBERS)
"""Columns of a block, in their order."""

TIMING_SOURCES = ("none", "kernel", "wall", "host", "sampled")

RING = (
    "ring", "whole", "job_id", "rank", "node", "local_rank", "world_size", "alive", "attempt",
    "dp_group", "tp_group", "pp_stage", "pod_uid", "pod_namespace",
)  # fmt: skip
"""Members of a ring in the head: its name, whether it is answered from `since` on, its rank."""

MOST_ROWS = 4096
"""Rows of a block: 600 KiB, of which an agent holds one at a time."""

MOST_CURSORS = 320
"""Rings that a reader names: more do not fit into the head of a request. Twenty times those of the
largest nodes sold."""

_CURSOR = re.compile(r"([0-9a-f]{16}):([0-9]{1,18})")


def cursors_text(cursors: Mapping[str, int]) -> str:
    """Return the parameter `after`: rings and the number of the record that is wanted next."""
    return ",".join(f"{ring}:{number}" for ring, number in list(cursors.items())[:MOST_CURSORS])


def cursors_of(text: str) -> dict[str, int]:
    """Return what the parameter `after` says.

    Raises:
        ValueError: it is none, or names too many rings.
    """
    parts = text.split(",") if text else []
    found = [_CURSOR.fullmatch(part) for part in parts]
    if None in found or len(found) > MOST_CURSORS:
        raise ValueError("after takes up to 320 rings with the number of a record, as RING:NUMBER")
    return {match[1]: int(match[2]) for match in found if match}
