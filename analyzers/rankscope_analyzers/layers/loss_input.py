"""Where losses became infinite or NaN first, and which files of the dataset were read there. Pure.

The gradients of such a loss make the weights, and with them the losses of all other ranks, infinite
or NaN a step later, whatever those read: only the rank of the first step can have read the cause.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope_agent.contract.metrics import reported
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers.rank_locations import by_rank, rank_number
from rankscope_analyzers.text.name_lists import ranks_named

READS: tuple[Metric, ...] = (
    reported.NONFINITE_LOSS_STEP,
    reported.NONFINITE_LOSS_SHARDS,
    reported.NONFINITE_LOSS_SHARD,
)

MOST_NAMED = 8
"""CRC-32s in one sentence: those of two ranks, in which it may have begun at the same step."""


def began(observed: Observed, job_id: str, ranks: Sequence[int]) -> str | None:
    """Return in which of these ranks it began and what they read; None if no probe reports it."""
    steps = {
        rank: series.last
        for rank, series in by_rank(observed, reported.NONFINITE_LOSS_STEP, job_id).items()
        if rank in ranks
    }
    if not steps:
        return None
    earliest = min(steps.values())
    first = sorted(rank for rank, step in steps.items() if step == earliest)
    began_there = f"it began in {ranks_named(first)} after step {earliest:.0f}"
    return began_there + _read(observed, job_id, first)


def _read(observed: Observed, job_id: str, ranks: Sequence[int]) -> str:
    counts = by_rank(observed, reported.NONFINITE_LOSS_SHARDS, job_id)
    count = sum(int(counts[rank].last) for rank in ranks if rank in counts)
    if not count:
        return ""
    names = _checksums(observed, job_id, ranks)
    if not names or len(names) > MOST_NAMED:
        return f", which read {count} files of the dataset, too many to link it to one"
    what = "a file" if len(names) == 1 else f"{len(names)} files"
    listed = ",".join(names)
    return (
        f", which read {what} of the dataset: `rankscope explain dataset MANIFEST --read {listed}`"
        " says which, and whether its bytes are those of the manifest"
    )


def _checksums(observed: Observed, job_id: str, ranks: Sequence[int]) -> Sequence[str]:
    """Return the CRC-32s of the files' names in hexadecimal digits, each once."""
    found = {
        f"{int(series.last):08x}"
        for series in observed.of(reported.NONFINITE_LOSS_SHARD, job_id=job_id)
        if rank_number(series.labels.get("rank", "")) in ranks and 0 <= series.last < 1 << 32
    }
    return sorted(found)
