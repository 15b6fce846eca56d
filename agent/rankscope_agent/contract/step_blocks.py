"""The binary format of `/api/v1/steps`, byte by byte.

    head    8s magic, u16 version, u16 reserved, u32 length; so many bytes of JSON
    block   u32 rows, u32 reserved; then each column of `NUMBERS`: as many float64
    ...
    tail    u32 0, u32 length; so many bytes of JSON

All numbers are little-endian, unknown ones are NaN; counters are exact below 2**53. The head holds
what does not change from row to row: `{"node", "columns", "timing_sources", "rings"}`, where a ring
is an object with the members `RING`. The tail says where to continue: `{"next", "left_out",
"truncated"}`, with one number for each ring of the head, and the ranks whose older records did not
fit. The number is 0 for a ring of which nothing was read that was to be answered from `since` on.
An answer without its tail was cut off and moves no cursor.

A reader that accepts `MEDIA_TYPE` lists in `after` the rings that it follows, each with the number
of the record that it wants next. A ring that is not listed, or whose number is 0 or lies beyond its
end (it was recreated, or the number belongs to another ring), is answered from `since` on, with
`whole` true. If all its steps began before, it is followed from its end on.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from rankscope_agent.contract.model import STEP_COLUMNS

MEDIA_TYPE = "application/vnd.rankscope.steps"
"""Sent in Accept by readers and in Content-Type by agents; everyone else gets JSON."""

MAGIC, VERSION = b"RKSTEPS\n", 1
"""The version changes when meanings change, not when columns and members are added."""

HEAD = struct.Struct("<8sHHI")
BLOCK = struct.Struct("<II")

OF_A_RING = frozenset(
    ("job_id", "rank", "node", "gpu", "dp_group", "tp_group", "pp_stage", "timing_source")
)
"""Columns that hold for a whole ring, and the one that is text."""

RING_INDEX, TIMING_INDEX = "ring", "timing"
"""Columns that give a row's index into the rings and into the `timing_sources` of the head."""

RECORD_NUMBERS = tuple(name for name in STEP_COLUMNS if name not in OF_A_RING)
"""The numeric columns of a record."""

NUMBERS = (RING_INDEX, TIMING_INDEX, *RECORD_NUMBERS)
"""The columns of a block, in order."""

TIMING_SOURCES = ("none", "kernel", "wall", "host", "sampled")

RING = (
    "ring", "whole", "job_id", "rank", "node", "local_rank", "world_size", "alive", "attempt",
    "dp_group", "tp_group", "pp_stage", "pod_uid", "pod_namespace",
)  # fmt: skip
"""Members of a ring in the head: its name, whether it is answered from `since` on, its rank."""

MOST_ROWS = 4096
"""Rows of a block: 600 KiB; an agent holds one block at a time."""

MOST_CURSORS = 320
"""Rings that a reader may list: more do not fit into the head of a request. Twenty times as many as
the largest nodes on the market have."""

_CURSOR = re.compile(r"([0-9a-f]{16}):([0-9]{1,18})")


def cursors_text(cursors: Mapping[str, int]) -> str:
    """Return the parameter `after`: rings, each with the number of the record wanted next."""
    return ",".join(f"{ring}:{number}" for ring, number in list(cursors.items())[:MOST_CURSORS])


def cursors_of(text: str) -> dict[str, int]:
    """Read the parameter `after`.

    Raises:
        ValueError: the text is malformed or lists too many rings.
    """
    parts = text.split(",") if text else []
    found = [_CURSOR.fullmatch(part) for part in parts]
    if None in found or len(found) > MOST_CURSORS:
        raise ValueError("after takes up to 320 rings, each with a record number, as RING:NUMBER")
    return {match[1]: int(match[2]) for match in found if match}
