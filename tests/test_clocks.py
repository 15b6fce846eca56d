"""Offsets of nodes' clocks, from steps that end for all of a job's nodes at one moment."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps import clocks, frames
from rankscope_analyzers.steps.clocks import ClockOffset
from simulated_jobs import Fault, Job, records

OFFSETS = {"node-00000": -0.030, "node-00001": 0.0, "node-00002": 0.045}
JITTER = 0.0004


def job(
    offsets: dict[str, float],
    drift: float = 0.0,
    jitter: float = JITTER,
    faults: tuple[Fault, ...] = (),
    steps: int = 120,
) -> pd.DataFrame:
    """Give the records of three nodes of four ranks, as their clocks tell their times."""
    rows = records(Job(ranks=12, steps=steps, ranks_per_node=4, faults=faults)).copy()
    begun = rows["t_start_unix_seconds"].min()
    random = np.random.default_rng(5)
    rows["t_start_unix_seconds"] += rows["node"].map(offsets) + np.where(
        rows["node"] == "node-00002", drift * (rows["t_start_unix_seconds"] - begun), 0.0
    )
    rows["step_seconds"] += random.exponential(jitter, len(rows))  # ranks return one by one
    return rows


def found(rows: pd.DataFrame) -> dict[str, ClockOffset]:
    return {offset.node: offset for offset in clocks.offsets(frames.build("job", rows))}


def test_each_nodes_offset_is_found_against_the_middle_node() -> None:
    known = found(job(OFFSETS))
    assert set(known) == set(OFFSETS)
    for node, offset in OFFSETS.items():
        assert known[node].seconds == pytest.approx(offset, abs=JITTER)
        assert abs(known[node].seconds - offset) < 5 * known[node].error_seconds + 1e-4
    assert known["node-00002"].significant


def test_clocks_that_agree_have_no_significant_offset() -> None:
    known = found(job(dict.fromkeys(OFFSETS, 0.0)))
    assert all(abs(offset.seconds) < 3e-4 for offset in known.values())


@pytest.mark.parametrize("kind", ["compute", "data"])
def test_slow_rank_is_no_wrong_clock(kind: str) -> None:
    """Its node is late in every step, and ends it with all others."""
    known = found(job(OFFSETS, faults=(Fault(kind, (2,), 0.6),)))
    assert known["node-00000"].seconds == pytest.approx(-0.030, abs=JITTER)


def test_drift_is_told_from_noise() -> None:
    drifting = found(job(OFFSETS, drift=50e-6, steps=200))["node-00002"]
    assert drifting.drift == pytest.approx(50e-6, rel=0.2)
    still = found(job(OFFSETS, drift=0.0, steps=200))["node-00002"]
    assert still.drift == 0.0
    later = np.array([drifting.at_unix_seconds + 100.0])
    assert drifting.at(later)[0] == pytest.approx(drifting.seconds + 0.005, abs=0.001)


def test_node_that_writes_a_checkpoint_alone_now_and_then_shifts_nothing() -> None:
    rows = job(OFFSETS)
    alone = (rows["step"] % 10 == 0) & (rows["node"] == "node-00001")
    rows.loc[alone, "step_seconds"] += 3.0
    assert found(rows)["node-00001"].seconds == pytest.approx(0.0, abs=JITTER)


def test_nodes_of_different_sizes_are_compared() -> None:
    rows = job(OFFSETS)
    rows = rows[~rows["rank"].isin([1, 2, 3, 7])]
    known = found(rows)
    assert known["node-00002"].seconds == pytest.approx(0.045, abs=2 * JITTER)


def test_node_that_says_too_little_has_no_offset() -> None:
    rows = job(OFFSETS)
    silent = (rows["node"] == "node-00002") & (rows["step"] > 30)
    rows = rows[~silent]
    assert len(found(rows)) == 3
    rows = rows[~((rows["node"] == "node-00002") & (rows["step"] > 5))]
    assert set(found(rows)) == {"node-00000", "node-00001"}


def test_one_node_and_few_steps_give_none() -> None:
    one = records(Job(ranks=4, steps=60, ranks_per_node=4))
    assert clocks.offsets(frames.build("job", one)) == ()
    few = job(OFFSETS)
    assert found(few[few["step"] < 9]) == {}


def test_only_what_is_more_than_chance_is_corrected() -> None:
    frame = frames.build("job", job(OFFSETS))
    known = clocks.offsets(frame)
    by_rank = clocks.per_rank(frame, known)
    assert {by_rank[rank].node for rank in (0, 3)} == {"node-00000"}
    assert by_rank[11].seconds == pytest.approx(0.045, abs=JITTER)
    unsure = tuple(
        ClockOffset(offset.node, offset.seconds, 1.0, 0.0, offset.at_unix_seconds)
        for offset in known
    )
    assert clocks.per_rank(frame, unsure) == {}


def three_nodes(ahead: np.ndarray) -> SimpleNamespace:
    """Return steps of three nodes whose clocks differ by as much in each step."""
    steps = len(ahead)
    starts = np.arange(steps, dtype=float)[:, None] + np.array([0.0, 0.0, 1.0]) * ahead[:, None]
    return SimpleNamespace(
        nodes=("a", "b", "c"),
        usable=np.ones(steps, bool),
        starts=starts,
        step=np.full((steps, 3), 0.9),
    )


@pytest.mark.parametrize(("steps", "told"), [(7, False), (8, True)])
def test_an_offset_is_taken_from_eight_common_ends(steps: int, told: bool) -> None:
    assert bool(clocks.offsets(three_nodes(np.full(steps, 0.05)))) is told


@pytest.mark.parametrize(("newest", "alone"), [(130, False), (256, True)])
def test_an_offset_is_that_of_the_newest_256_steps(newest: int, alone: bool) -> None:
    """A clock that was set anew counts alone once its old time is as long ago."""
    ahead = np.where(np.arange(600) >= 600 - newest, 0.05, 0.0)
    *_, last = clocks.offsets(three_nodes(ahead))
    assert (abs(last.seconds - 0.05) < 1e-3) is alone


@pytest.mark.parametrize(("error", "significant"), [(0.0097, True), (0.0103, False)])
def test_three_standard_errors_make_an_offset_a_clocks(error: float, significant: bool) -> None:
    assert ClockOffset("a", -0.03, error, 0.0, 0.0).significant is significant
