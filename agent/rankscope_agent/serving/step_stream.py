"""Writes step records and spans as one JSON object in chunks, in bounded memory."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rankscope_agent.contract.model import MAX_STEP_ROWS, STEP_COLUMNS, SpanRow, StepRow

ROWS_PER_PIECE = 500  # about 60 kB of JSON: large enough for sockets and gzip, small in memory


def steps_json(
    rows: Iterable[StepRow | SpanRow],
    node: str,
    max_rows: int = MAX_STEP_ROWS,
    columns: Sequence[str] = STEP_COLUMNS,
) -> Iterator[bytes]:
    """Yield the pieces of `{"node", "columns", "rows", "truncated"}`.

    Not-measured values, NaN and infinities become null. `truncated` comes last and says that
    there were more than `max_rows` rows.
    """
    header = json.dumps({"node": node, "columns": columns}, separators=(",", ":"))
    yield f'{header[:-1]},"rows":['.encode()
    source = iter(rows)
    separator, left = "", max_rows
    while batch := list(itertools.islice(source, min(left, ROWS_PER_PIECE))):
        yield f"{separator}{_batch_json(batch)}".encode()
        separator, left = ",", left - len(batch)
    truncated = left == 0 and next(source, None) is not None
    yield b'],"truncated":true}\n' if truncated else b'],"truncated":false}\n'


def _batch_json(batch: list[StepRow | SpanRow]) -> str:
    """Write rows without the enclosing brackets."""
    try:
        text = json.dumps(batch, separators=(",", ":"), allow_nan=False)
    except ValueError:  # raised for NaN and infinities, which JSON does not have
        text = json.dumps(finite(batch), separators=(",", ":"), allow_nan=False)
    return text[1:-1]


def finite(value: Any) -> Any:
    """Return a value with null in the place of each number that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value
