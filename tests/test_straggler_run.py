"""One run's state: which stalls it remembers and for how long, and when it knows its usual pace."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from rankscope_analyzers.steps.records import TIMINGS
from rankscope_analyzers.stragglers import state
from rankscope_analyzers.stragglers.quantities import Steps, derive
from rankscope_analyzers.stragglers.run import Run
from straggler_views import ranks, shape

HOSTED = replace(shape(), timing=TIMINGS["host"])
KERNELS = replace(shape(), timing=TIMINGS["kernel"])


def step(*, seconds=1.0, compute=0.6, stall=0.0, arranged=KERNELS):
    """Return one step of eight ranks: seconds, or of any shape that fits (1, 8, 1)."""

    def filled(value):
        return np.array(np.broadcast_to(np.asarray(value, float), (1, 1, 8, 1)))

    own, late = filled(compute) * seconds, filled(stall)
    parts = (filled(seconds), filled(0.0), own, filled(0.1 * seconds))
    return derive(Steps(*parts, other=late), arranged)


def run_of(steps, arranged=KERNELS):
    run = Run(arranged)
    for one in steps:
        pushed(run, one)
    return run


def pushed(run, steps):
    """Add steps; return after how many usable ones the window was due to be judged."""
    count = len(steps.duration)
    parts = run.push(steps, np.arange(count), [0] * count)
    return [run.usable for part in parts if part.is_due]


def stalls(run):
    """Return how long the remembered stalls were."""
    longest = run.view().spikes.longest
    return longest[longest > 0].tolist()


@pytest.mark.parametrize(
    ("seconds", "stall", "remembered"),
    [(1.0, 0.045, 0), (1.0, 0.055, 1), (0.02, 0.0025, 0), (0.02, 0.0035, 1)],
)
def test_a_stall_takes_a_twentieth_of_the_step_and_a_turn_of_the_scheduler(
    seconds, stall, remembered
):
    usual = [step(seconds=seconds)] * 40
    found = stalls(run_of([*usual, step(seconds=seconds, stall=ranks({3: stall}))]))
    assert found == [pytest.approx(stall)] * remembered


@pytest.mark.parametrize(
    ("seconds", "after", "remembered"),
    [(1.0, 127, 1), (1.0, 128, 0), (0.26, 128, 0), (0.24, 511, 1), (0.24, 512, 0)],
)
def test_stalls_are_remembered_for_128_steps_and_for_512_brief_ones(seconds, after, remembered):
    usual = step(seconds=seconds)
    run = run_of([step(seconds=seconds, stall=ranks({3: 0.1})), *[usual] * after])
    assert len(stalls(run)) == remembered


@pytest.mark.parametrize(("faster", "remembered"), [(0.0, 1), (0.045, 1), (0.055, 0), (0.1, 0)])
def test_a_stall_makes_no_rank_faster_and_unequal_work_does(faster, remembered):
    usual = [step(arranged=HOSTED)] * 15
    newest = step(compute=0.6 + ranks({3: 0.1, 5: -faster}), arranged=HOSTED)
    assert len(stalls(run_of([*usual, newest], HOSTED))) == remembered


@pytest.mark.parametrize(("slower", "remembered"), [(0.17, 0), (0.18, 1)])
def test_a_stall_within_compute_exceeds_its_noise_five_times(slower, remembered):
    signs = np.where(np.arange(8) % 2, 1.0, -1.0)[None, :, None]
    noisy = [step(compute=0.6 + 0.02 * sign * signs, arranged=HOSTED) for sign in [1.0, -1.0] * 8]
    newest = step(compute=0.6 + ranks({3: slower}), arranged=HOSTED)
    assert len(stalls(run_of([*noisy, newest], HOSTED))) == remembered


@pytest.mark.parametrize(
    ("seconds", "steps", "known"),
    [(1.0, 29, False), (1.0, 30, True), (0.25, 39, False), (0.25, 40, True)],
)
def test_a_run_knows_its_pace_after_thirty_steps_that_last_ten_seconds(seconds, steps, known):
    assert (run_of([step(seconds=seconds)] * steps).baseline is not None) is known


def many_steps(count, seconds, random, arranged):
    """Return steps of many lengths, with stalls, and ranks that are silent or not timed."""
    duration = seconds * random.uniform(0.5, 2.0, (count, 1, 1, 1)) * np.ones((1, 1, 8, 1))
    compute = duration * random.uniform(0.4, 0.6, duration.shape)
    rest = np.where(random.random(duration.shape) < 0.02, 0.2, 0.01) * duration
    compute[random.random(duration.shape) < 0.02] = np.nan
    sync = 0.1 * duration
    sync[100:, 0, 3] = np.nan
    return derive(Steps(duration, 0.01 * duration, compute, sync, other=rest), arranged)


@pytest.mark.parametrize("arranged", [KERNELS, HOSTED, replace(HOSTED, wall=True)])
@pytest.mark.parametrize("seconds", [0.02, 0.1, 1.0])
def test_how_many_steps_are_added_at_once_changes_nothing(seconds, arranged):
    steps = many_steps(200, seconds, np.random.default_rng(3), arranged)
    rows = np.arange(200)
    known = set()
    for size in (1, 7, 200):
        run, stalled, due = Run(arranged), [], []
        for part in np.split(rows, range(size, 200, size)):
            for one in run.push(steps, part, part.tolist()):
                stalled += one.stalls
                due += [run.usable] if one.is_due else []
        known.add(json.dumps([stalled, due, state.document(run)]))
    assert len(known) == 1


def test_a_run_is_judged_at_each_fourth_usable_step():
    assert pushed(Run(KERNELS), many_steps(13, 1.0, np.random.default_rng(0), KERNELS)) == [
        4,
        8,
        12,
    ]


@pytest.mark.parametrize(("measured", "compared"), [(3, False), (4, True)])
def test_a_part_is_compared_that_half_of_the_ranks_have_measured(measured, compared):
    compute = ranks(dict.fromkeys(range(measured), 0.6), np.nan)
    assert ("compute" in run_of([step(compute=compute)] * 16).view().known) is compared


def timed(many):
    """Return the share of the ranks that were timed in a step in which so many of them were."""
    compute = ranks(dict.fromkeys(range(many), 0.6), np.nan)
    return float(step(compute=compute).timed[0])


@pytest.mark.parametrize(("many", "compared"), [(7, False), (8, True)])
def test_of_steps_timed_in_samples_those_count_that_all_ranks_have_timed(many, compared):
    run = Run(KERNELS)
    assert run.is_comparable(timed(8))
    assert not run.is_comparable(timed(0))
    assert run.is_comparable(timed(many)) is compared


@pytest.mark.parametrize(("since", "compared"), [(30, False), (31, True)])
def test_how_many_ranks_are_timed_together_is_forgotten_after_32_steps(since, compared):
    run = Run(KERNELS)
    run.is_comparable(timed(8))
    run.is_comparable(timed(0))
    for _ in range(since):
        run.is_comparable(timed(7))
    assert run.is_comparable(timed(7)) is compared
