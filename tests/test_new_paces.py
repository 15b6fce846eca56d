"""Jobs that take longer for a reason: more work, another size, or because that is how they work."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import baselines, feed
from rankscope_analyzers.stragglers.baselines import KnownSizes
from rankscope_analyzers.stragglers.feed import Feed
from rankscope_analyzers.stragglers.state import document, loaded
from straggler_views import past, shape
from suite_jobs import fault, made, running

MAXIMUM_SIZES = 16
SLOWER = fault("global_slowdown", "compute", 1.4, first=80, last=220)
LAYOUT = Layout(32, 1, 1, 0, wall=True, by_groups=True)
START = "t_start_unix_seconds"


def records(*faults, **changes):
    simulated = made(*faults, **({"tensor": 1, "pipeline": 1, "checkpoint_period": 0} | changes))
    return running(simulated)


def samples(rows, later, first=80):
    """Return records with 16 samples a step, and `later` from a step on."""
    return rows.assign(samples=np.where(rows["step"] >= first, later, 16))


def kinds(rows):
    return [one.kind for one in feed.detect_latest(FrameTable(rows), LAYOUT).incidents]


@pytest.mark.parametrize(
    ("later", "expected"),
    [(16, ["global_slowdown"]), (23, []), (18, ["global_slowdown"]), (8, ["global_slowdown"])],
)
def test_steps_that_have_as_much_more_to_do_are_no_slower(later, expected):
    """1.4 times the time for 1.44 times the samples is none, for 1.13 times the samples it is."""
    assert kinds(samples(records(SLOWER), later)) == expected


def test_where_nobody_counts_more_work_cannot_be_told_from_slower_work():
    assert kinds(records(SLOWER).assign(samples=np.nan)) == ["global_slowdown"]


def resized(*parts):
    """Return records of jobs one after the other, as one that restarts with other sizes."""
    ends, found = 0.0, []
    for attempt, rows in enumerate(parts):
        shift = ends - rows[START].min() + 30.0
        found.append(rows.assign(**{START: rows[START] + shift, "attempt": attempt}))
        ends = float((found[-1][START] + rows["step_seconds"]).max())
    steps = np.cumsum([0, *(int(part["step"].max()) + 1 for part in found[:-1])])
    return pd.concat(
        [part.assign(step=part["step"] + int(n)) for part, n in zip(found, steps, strict=True)],
        ignore_index=True,
    )


BORN_SLOW = replace(SLOWER, first=0, last=120)


def test_a_slowdown_that_comes_with_another_size_is_seen_where_samples_are_counted():
    grown = resized(records(steps=120), records(BORN_SLOW, world=16, steps=120))
    assert kinds(grown.assign(samples=16)) == ["global_slowdown"]
    assert kinds(resized(records(steps=120), records(world=16, steps=120)).assign(samples=16)) == []


def test_another_size_with_more_samples_for_each_is_as_fast_as_before():
    small = records(BORN_SLOW, world=16, steps=120).assign(samples=23)
    assert kinds(resized(records(steps=120).assign(samples=16), small)) == []


def test_a_job_that_has_its_former_size_again_is_compared_with_its_own_beginning():
    whole = resized(records(steps=120), records(world=16, steps=120), records(BORN_SLOW, steps=120))
    assert kinds(whole.assign(samples=np.nan)) == ["global_slowdown"]


def test_sizes_are_remembered_up_to_a_bound_the_last_ones():
    sizes = KnownSizes()
    for replicas in range(2, 3 + MAXIMUM_SIZES):
        sizes.add((1, replicas, 1), past(shape(replicas)))
    assert sizes.of((1, 2, 1)) is None
    assert sizes.of((1, 3, 1)) is not None
    assert sizes.nearest((1, 50, 1)) is sizes.of((1, 2 + MAXIMUM_SIZES, 1))
    assert sizes.nearest((2, 50, 1)) is None


@pytest.fixture
def short_day(monkeypatch):
    monkeypatch.setattr(baselines, "NEW_PACE_SECONDS", 200.0)


def test_what_slows_all_ranks_for_a_day_is_the_pace_of_the_job(short_day):
    rows = records(replace(SLOWER, last=400), steps=400)
    found = feed.detect_latest(FrameTable(rows), LAYOUT)
    (slowdown,) = found.incidents
    assert slowdown.until is not None
    assert 200.0 <= slowdown.until - slowdown.since < 320.0
    (note,) = (one for one in found.notes if "the job's pace now" in one)
    assert "1.4" in note


def test_what_comes_on_top_of_the_new_pace_is_another_slowdown(short_day):
    rows = records(replace(SLOWER, last=600), steps=600)
    later = rows["step"] >= 400
    for part in ("compute_seconds", "step_seconds"):
        rows.loc[later, part] += 1.0
    found = feed.detect_latest(FrameTable(rows), LAYOUT).incidents
    assert [one.kind for one in found] == ["global_slowdown"] * 2
    assert found[1].expected == pytest.approx(2.0 * 1.4, rel=0.03)


def test_a_rank_that_is_slow_for_a_day_is_no_pace(short_day):
    slow = fault("gpu_compute", "gpu", 1.4, first=80, last=400)
    (said,) = feed.detect_latest(FrameTable(records(slow, steps=400)), LAYOUT).incidents
    assert (said.until, said.ranks) == (None, (13,))


def test_what_is_usual_is_part_of_the_state(short_day):
    rows = records(replace(SLOWER, last=400), steps=400).sort_values(START).reset_index(drop=True)
    half = len(rows) * 3 // 4
    one = Feed(LAYOUT)
    one.add(FrameTable(rows[:half]))
    other = loaded(json.loads(json.dumps(document(one))))
    for each in (one, other):
        each.add(FrameTable(rows[half:].reset_index(drop=True)))
    assert one.finish() == other.finish()
