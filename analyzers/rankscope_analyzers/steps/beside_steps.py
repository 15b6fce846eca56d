"""What ranks did outside of steps, as agents report it: checkpoints, evaluations, compilation.

Columns: `rankscope_agent.contract.model.SPAN_COLUMNS`. Nothing from an agent's response is used
before it has been checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rankscope_agent.contract.model import SPAN_KINDS

SAVING = frozenset(("checkpoint_save", "checkpoint_staging"))
"""Kinds of spans in which a rank saves."""

MAXIMUM_ROWS = 200_000
"""Spans of one response: a rank keeps 1,024."""


class BesideSteps(NamedTuple):
    """One span of a rank; times in seconds.

    Args:
        rank: the rank.
        kind: one of `SPAN_KINDS`.
        begin: Unix time by its node's clock.
        blocked: time by which it delayed the steps under way; 0 if unknown, as while it lasts.
    """

    rank: int
    kind: str
    begin: float
    blocked: float


def read(document: Mapping[str, Any]) -> Iterator[tuple[str, BesideSteps]]:
    """Yield the spans of a response with their jobs; impossible ones are left out.

    Raises:
        LookupError, TypeError: it is not such a response.
    """
    columns = list(document["columns"])
    places = [columns.index(name) for name in ("job_id", "rank", "kind", "t_start_unix_seconds")]
    blocked_place = columns.index("blocked_seconds")
    for row in document["rows"][:MAXIMUM_ROWS]:
        job, rank, kind, begin = (row[place] for place in places)
        blocked = row[blocked_place]
        if (
            isinstance(job, str)
            and type(rank) is int
            and rank >= 0
            and kind in SPAN_KINDS
            and _is_time(begin)
        ):
            yield job, BesideSteps(rank, kind, begin, blocked if _is_time(blocked) else 0.0)


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 <= value <= 1e11
    )
