"""Converts the JSON of agents that send no columns to the same form: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2s
from typing import Any

import numpy as np
import pandas as pd

from rankscope_agent.contract import step_blocks as form
from rankscope_analyzers.intake.step_columns import Head, Ring, StepColumns
from rankscope_analyzers.intake.step_history import StepAnswer
from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.steps.records import MAXIMUM_RANK

OF_A_RANK = ("job_id", "rank", "node", "gpu", "dp_group", "tp_group", "pp_stage")


def ranks_of(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the ranks in /api/v1/ranks.

    Raises:
        ValueError: it is not such a response.
    """
    ranks = document.get("ranks")
    if not isinstance(ranks, list):
        raise ValueError("ranks is not a list")
    return [rank for rank in ranks if isinstance(rank, dict)]


def columns_of(answer: StepAnswer, ranks: Sequence[Mapping[str, Any]]) -> StepColumns:
    """Return the records of a response, with a ring for each of their ranks.

    Args:
        answer: of one agent.
        ranks: its report on its ranks.

    Raises:
        ValueError: a rank is invalid.
    """
    reported = {(rank.get("job_id"), rank.get("rank")): rank for rank in ranks}
    writers = list(zip(*(_values(answer, name) for name in OF_A_RANK), strict=True))
    places: dict[tuple[Any, ...], int] = {}
    ring = [places.setdefault(writer, len(places)) for writer in writers]
    sources = list(dict.fromkeys(map(str, answer.column("timing_source"))))
    numbers = {
        name: _floats(answer, name) for name in form.RECORD_NUMBERS if name in answer.columns
    }
    numbers[form.TIMING_INDEX] = np.array(
        [sources.index(str(one)) for one in answer.column("timing_source")]
        or np.full(len(ring), np.nan),
        dtype=np.float64,
    )
    rings = tuple(_ring(answer.url, writer, reported) for writer in places)
    return StepColumns(
        head=Head(b"", "", (), tuple(sources), rings),
        next_numbers=(0,) * len(rings),
        ring=np.array(ring, dtype=np.int64),
        numbers=numbers,
        truncated=False,
        left_out=answer.left_out,
        unread=answer.unread,
        in_blocks=False,
    )


def _values(answer: StepAnswer, name: str) -> Sequence[Any]:
    return answer.column(name) or [None] * len(answer.rows)


def _floats(answer: StepAnswer, name: str) -> Floats:
    values = pd.to_numeric(pd.Series(answer.column(name), dtype=object), errors="coerce")
    return values.to_numpy(np.float64, na_value=np.nan)


def _ring(url: str, writer: tuple[Any, ...], reported: Mapping[tuple[Any, Any], Any]) -> Ring:
    job_id, rank, node, gpu, dp_group, tp_group, pp_stage = writer
    if type(rank) is not int or not 0 <= rank <= MAXIMUM_RANK:
        raise ValueError(f"{rank!r} is not a rank")
    name = blake2s(f"{url} {job_id} {rank} {node}".encode(), digest_size=8).hexdigest()
    own = {"job_id": job_id, "rank": rank, "node": str(node), "local_rank": gpu,
           "dp_group": dp_group, "tp_group": tp_group, "pp_stage": pp_stage}  # fmt: skip
    return Ring(name, False, {**reported.get((job_id, rank), {}), **own})
