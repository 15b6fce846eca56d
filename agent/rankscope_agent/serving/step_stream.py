"""Writes step records and spans as one JSON object in chunks, in bounded memory."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rankscope_agent.contract.model import (
    MAX_STEP_ROWS,
    STEP_COLUMNS,
    LeftOut,
    SpanRow,
    StepRow,
)

ROWS_PER_PIECE = 500  # about 60 kB of JSON: large enough for sockets and gzip, small in memory


def steps_json(
    rows: Iterable[StepRow | SpanRow],
    node: str,
    max_rows: int = MAX_STEP_ROWS,
    columns: Sequence[str] = STEP_COLUMNS,
    left_out: Sequence[LeftOut] | None = None,
) -> Iterator[bytes]:
    """Yield the pieces of `{"node", "columns", "rows", "left_out", "truncated"}`.

    Unmeasured values, NaN and infinities become null. What is known last comes last: `truncated`
    states that there were more than `max_rows` rows.

    Args:
        rows: in the order of the columns.
        node: name of this node.
        max_rows: how many of them are written.
        columns: their names.
        left_out: grows, while rows are read, by the ranks of which there are more; None if that is
            not counted.
    """
    header = _compact({"node": node, "columns": columns})
    yield f'{header[:-1]},"rows":['.encode()
    source = iter(rows)
    separator, left = "", max_rows
    while batch := list(itertools.islice(source, min(left, ROWS_PER_PIECE))):
        yield f"{separator}{_batch_json(batch)}".encode()
        separator, left = ",", left - len(batch)
    truncated = left == 0 and next(source, None) is not None
    end: dict[str, Any] = {} if left_out is None else {"left_out": list(map(asdict, left_out))}
    yield f"],{_compact(end | {'truncated': truncated})[1:]}\n".encode()


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _batch_json(batch: list[StepRow | SpanRow]) -> str:
    """Return rows without the enclosing brackets."""
    try:
        text = json.dumps(batch, separators=(",", ":"), allow_nan=False)
    except ValueError:  # raised for NaN and infinities, which JSON lacks
        text = json.dumps(finite(batch), separators=(",", ":"), allow_nan=False)
    return text[1:-1]


def finite(value: Any) -> Any:
    """Return a value with null in place of each number that JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value
