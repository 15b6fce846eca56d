"""The work of the ranks of one job on this node, as reported by their processes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rankscope_agent.contract.metrics import job_work as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.training.reported import Signal
from rankscope_agent.sources.training.reported_totals import SignalTotals

TYPES: Mapping[float, str] = {1: "fp32", 2: "tf32", 3: "fp16", 4: "bf16", 5: "fp8", 6: "fp4"}
"""Data types by the probe's number for them."""

FLOPS: Mapping[str, Signal] = {"token": Signal.TOKEN_FLOPS, "sample": Signal.SAMPLE_FLOPS}


def job_work(
    job_id: str, ranks: Iterable[SignalTotals | None], present: Sequence[SignalTotals | None]
) -> Iterator[Sample]:
    """Yield the series of a job.

    Args:
        job_id: of the job.
        ranks: all ranks that were seen; None for one whose probe reports nothing.
        present: the ranks that the job has now.
    """
    tokens = sum(rank.count(Signal.TOKENS) for rank in ranks if rank is not None)
    if tokens:
        yield metrics.JOB_TOKENS.sample(tokens, job_id=job_id)
    known = [rank for rank in present if rank is not None]
    epochs = _values(known, Signal.EPOCH)
    if epochs:
        yield metrics.JOB_EPOCHS.sample(max(epochs), job_id=job_id)
    parts = _values(known, Signal.PARAMETERS_ONCE)
    if parts and len(parts) == len(present):
        yield metrics.JOB_PARAMETERS.sample(sum(parts), job_id=job_id)
    for per, signal in FLOPS.items():
        flops = _values(known, signal)
        if flops:
            yield metrics.JOB_MODEL_FLOPS.sample(max(flops), job_id=job_id, per=per)
    numbers = TYPES.get(max(_values(known, Signal.NUMBERS), default=0.0))
    if numbers:
        yield metrics.JOB_NUMBERS_INFO.sample(1, job_id=job_id, dtype=numbers)


def _values(ranks: Iterable[SignalTotals], signal: Signal) -> list[float]:
    values = (rank.value(signal) for rank in ranks)
    return [value for value in values if value is not None]
