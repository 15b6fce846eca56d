"""Speed of the straggler analysis.

One 16-step window of 16,384 ranks as a running watch judges it, and whole traces in records a
second. Everything runs on one core.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.stragglers.detector import Detector
from rankscope_analyzers.stragglers.quantities import Steps
from rankscope_analyzers.stragglers.shape import Shape

RANKS, TENSOR, PIPELINE, MICROBATCHES = 16384, 8, 8, 16
WINDOW, WARM = 16, 44
ROUNDS = 5
TRACE_RANKS, TRACE_STEPS = 1024, 1000


@dataclass(frozen=True, slots=True)
class StragglerSpeed:
    """Seconds for a window, records a second over a trace (feeding, and with preparing them)."""

    window_seconds: float
    fed_per_second: float
    whole_per_second: float
    records: int


def measure() -> StragglerSpeed:
    """Measure both on random step times; nothing is read from disk."""
    fed, whole, records = _trace_speed()
    return StragglerSpeed(_window_seconds(), fed, whole, records)


def _shape(ranks: int) -> Shape:
    sizes = (PIPELINE, ranks // PIPELINE // TENSOR, TENSOR)
    nodes = (np.arange(ranks) // 8).reshape(sizes)
    return Shape(*sizes, MICROBATCHES, False, nodes)


def _steps(random: np.random.Generator, count: int, sizes: tuple[int, int, int]) -> Steps:
    shape = (count, *sizes)
    compute = 2.0 * np.exp(0.01 * random.standard_normal(shape))
    data = 0.02 * np.exp(0.2 * random.standard_normal(shape))
    end = (data + compute).max(axis=(1, 2, 3), keepdims=True) + 0.3
    return Steps(np.broadcast_to(end + 0.1, shape).copy(), data, compute, end - data - compute)


def _window_seconds() -> float:
    """Return the median time to take 16 more steps of a running job, evaluations included."""
    random = np.random.default_rng(1)
    shape = _shape(RANKS)
    detector = Detector([f"node-{n:05d}" for n in range(RANKS // 8)])
    detector.restart(shape)
    times = []
    for number in range(ROUNDS + WARM // WINDOW + 1):
        steps = _steps(random, WINDOW, shape.sizes)
        counters = np.arange(WINDOW) + number * WINDOW
        ends = 1e9 + 2.5 * (counters + 1.0)
        begin = time.perf_counter()
        detector.feed(counters, ends, steps)
        times.append(time.perf_counter() - begin)
    return float(np.median(times[-ROUNDS:]))


def trace(ranks: int, steps: int) -> pd.DataFrame:
    """Return a healthy trace in delivery order by step."""
    shape = _shape(ranks)
    made = _steps(np.random.default_rng(2), steps, shape.sizes)
    rank = np.tile(np.arange(ranks), steps)
    step = np.repeat(np.arange(steps), ranks)
    length = made.step.reshape(steps, -1)
    start = 1e9 + np.concatenate([[0.0], np.cumsum(length[:-1, 0])])
    return pd.DataFrame(
        {
            "step": step,
            "rank": rank,
            "node": rank // 8,
            "gpu": rank % 8,
            "t_start_unix_seconds": np.repeat(start, ranks),
            "step_seconds": length.ravel(),
            "data_seconds": made.data.ravel(),
            "compute_seconds": made.compute.ravel(),
            "sync_seconds": made.sync.ravel(),
            "dp_group": rank // (ranks // PIPELINE) * TENSOR + rank % TENSOR,
            "tp_group": rank // TENSOR,
            "pp_stage": rank // (ranks // PIPELINE),
        }
    )


def _trace_speed() -> tuple[float, float, int]:
    records = trace(TRACE_RANKS, TRACE_STEPS)
    layout = feed.Layout(TRACE_RANKS, PIPELINE, TENSOR, MICROBATCHES, False)
    whole, fed = [], []
    for _ in range(3):
        begin = time.perf_counter()
        columns = feed.columns(records, TRACE_RANKS)
        prepared = time.perf_counter()
        feed.detect(columns, layout)
        done = time.perf_counter()
        whole.append(done - begin)
        fed.append(done - prepared)
    return len(records) / min(fed), len(records) / min(whole), len(records)


def report(speed: StragglerSpeed) -> str:
    """Return the figures as text."""
    return "\n".join(
        [
            f"16 steps of {RANKS} ranks with evaluations: {speed.window_seconds:.2f} s (goal 1)",
            f"{speed.records} records: {speed.fed_per_second / 1e6:.2f} M a second through the "
            f"analysis, {speed.whole_per_second / 1e6:.2f} M with preparing them (goal 3)",
        ]
    )
