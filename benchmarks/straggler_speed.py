"""Speed of the straggler analysis, in CPU time of one core.

One 16-step window of 16,384 ranks as a running watch judges it, a look at five new steps of an
equally large job, and whole traces in records a second: in the order of their steps, with the
clocks of nodes apart, and shuffled.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.stragglers.detector import Detector
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.stragglers.quantities import Steps
from rankscope_analyzers.stragglers.shape import Shape

RANKS, TENSOR, PIPELINE, MICROBATCHES = 16384, 8, 8, 16
WINDOW, WARM = 16, 44
LOOKED_AT, STEPS_OF_A_LOOK = 60, 5
ROUNDS = 5
TRACE_RANKS, TRACE_STEPS = 1024, 1000
CLOCK_OFFSET_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class StragglerSpeed:
    """CPU seconds for a window and a look, records per CPU second by the order of a trace."""

    window_seconds: float
    look_seconds: float
    per_second: Mapping[str, float]
    records: int


def measure() -> StragglerSpeed:
    """Measure both on random step times; nothing is read from disk."""
    records = trace(TRACE_RANKS, TRACE_STEPS)
    orders = _orders(records)
    seconds: dict[str, list[float]] = {name: [] for name in orders}
    for _ in range(ROUNDS):
        for name, ordered in orders.items():
            seconds[name].append(_judging_seconds(ordered))
    per_second = {name: len(records) / float(np.median(of)) for name, of in seconds.items()}
    return StragglerSpeed(_window_seconds(), _look_seconds(), per_second, len(records))


def _orders(records: pd.DataFrame) -> dict[str, pd.DataFrame]:
    random = np.random.default_rng(3)
    offsets = random.uniform(-CLOCK_OFFSET_SECONDS, CLOCK_OFFSET_SECONDS, TRACE_RANKS // 8)
    moved = records["t_start_unix_seconds"] + offsets[records["rank"].to_numpy() // 8]
    apart = records.assign(t_start_unix_seconds=moved)
    shuffled = apart.sample(frac=1, random_state=1).reset_index(drop=True)
    return {"by step": records, "clocks apart": apart, "shuffled": shuffled}


def _judging_seconds(records: pd.DataFrame) -> float:
    job = Layout(TRACE_RANKS, PIPELINE, TENSOR, MICROBATCHES, False)
    begin = time.process_time()
    feed.detect(FrameTable(records), job)
    return time.process_time() - begin


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
    detector = Detector()
    detector.node_numbers([f"node-{n:05d}" for n in range(RANKS // 8)])
    detector.start_run(shape)
    times = []
    for number in range(ROUNDS + WARM // WINDOW + 1):
        steps = _steps(random, WINDOW, shape.sizes)
        counters = np.arange(WINDOW) + number * WINDOW
        ends = np.asarray(1e9 + 2.5 * (counters + 1.0), dtype=np.float64)
        begin = time.process_time()
        detector.feed(counters, ends, steps)
        times.append(time.process_time() - begin)
    return float(np.median(times[-ROUNDS:]))


def _look_seconds() -> float:
    """Return the median time to judge the new steps that a look finds."""
    records = trace(RANKS, LOOKED_AT)
    job = Layout(RANKS, PIPELINE, TENSOR, MICROBATCHES, False)
    followed, times = FollowedJobs(), []
    for first in range(0, LOOKED_AT, STEPS_OF_A_LOOK):
        fresh = records[records["step"].between(first, first + STEPS_OF_A_LOOK - 1)]
        begin = time.process_time()
        followed.update("team/largest", fresh, job)
        times.append(time.process_time() - begin)
    return float(np.median(times))


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
            "node": np.char.mod("node-%05d", np.arange(ranks // 8))[rank // 8],
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


def report(speed: StragglerSpeed) -> str:
    """Return the figures as text."""
    orders = ", ".join(f"{name} {rate / 1e6:.2f} M" for name, rate in speed.per_second.items())
    return "\n".join(
        [
            f"16 steps of {RANKS} ranks with evaluations: {speed.window_seconds:.2f} s (goal 1)",
            f"a look at {STEPS_OF_A_LOOK} new steps of them: {speed.look_seconds:.2f} s",
            f"{speed.records} records, a second from table to incidents: {orders} (goal 3 M)",
        ]
    )
