"""Writes step records as blocks of columns, in bounded memory; the contract defines the format."""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice

from rankscope_agent.contract import step_blocks as form
from rankscope_agent.contract.model import (
    MAX_STEP_ROWS,
    STEP_COLUMNS,
    FreshSteps,
    LeftOut,
    RingHead,
    StepRow,
)

NUMBERS_AT = tuple(STEP_COLUMNS.index(name) for name in form.RECORD_NUMBERS)
TIMING_AT = STEP_COLUMNS.index("timing_source")
TIMING_INDEXES = {name: float(index) for index, name in enumerate(form.TIMING_SOURCES)}

Indexed = tuple[int, StepRow]
"""The index of a row's ring, and the row."""


def steps_blocks(found: FreshSteps, node: str, max_rows: int = MAX_STEP_ROWS) -> Iterator[bytes]:
    """Yield the pieces of an answer.

    Args:
        found: rings and their records.
        node: of the agent.
        max_rows: rows of the answer; if there are more, its tail says that it is truncated, and
            cursors stay where they are.
    """
    yield _head(found.rings, node)
    # A ring that is not followed yet, and not reached, is answered from `since` on again.
    behind = [0 if ring.whole else ring.next_number for ring in found.rings]
    batch: list[Indexed] = []
    left = max_rows
    for one in found.batches:
        if len(one.rows) > left:
            break
        left -= len(one.rows)
        batch.extend((one.ring, row) for row in one.rows)
        behind[one.ring] = one.next_number
        while len(batch) >= form.MOST_ROWS:
            yield _block(batch[: form.MOST_ROWS])
            del batch[: form.MOST_ROWS]
    else:
        yield from _ending(batch, behind, found.left_out, truncated=False)
        return
    yield from _ending(batch, behind, found.left_out, truncated=True)


def _head(rings: Sequence[RingHead], node: str) -> bytes:
    head = {
        "node": node,
        "columns": form.NUMBERS,
        "timing_sources": form.TIMING_SOURCES,
        "rings": [_ring(ring) for ring in rings],
    }
    text = _json(head)
    return form.HEAD.pack(form.MAGIC, form.VERSION, 0, len(text)) + text


def _ring(ring: RingHead) -> dict[str, object]:
    own = {"ring": ring.name, "whole": ring.whole}
    return {name: own.get(name, getattr(ring.identity, name, None)) for name in form.RING}


def _block(rows: Sequence[Indexed]) -> bytes:
    """Return rows as columns."""
    records = [row for _, row in rows]
    columns = [
        [float(ring) for ring, _ in rows],
        [TIMING_INDEXES.get(str(row[TIMING_AT]), math.nan) for row in records],
        *([_number(row[at]) for row in records] for at in NUMBERS_AT),
    ]
    data = array("d", [value for column in columns for value in column])
    if sys.byteorder == "big":
        data.byteswap()
    return form.BLOCK.pack(len(rows), 0) + data.tobytes()


def _number(value: str | int | float | None) -> float:
    return math.nan if value is None else float(value)


def _ending(
    batch: Sequence[Indexed],
    behind: Sequence[int],
    left_out: Sequence[LeftOut],
    *,
    truncated: bool,
) -> Iterator[bytes]:
    rows = iter(batch)
    while part := list(islice(rows, form.MOST_ROWS)):
        yield _block(part)
    text = _json({"next": behind, "left_out": list(map(asdict, left_out)), "truncated": truncated})
    yield form.BLOCK.pack(0, len(text)) + text


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
