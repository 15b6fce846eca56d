"""A job whose records come a few at a time has the incidents that a look at all of them finds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers.feed import detect_latest
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs, columns_of
from rankscope_analyzers.stragglers.state import document
from simulated_jobs import Fault, Job, records

START = "t_start_unix_seconds"


def layout(world):
    return Layout(world, 1, 1, 0, wall=True, by_groups=True)


def looks_of(table, every, late=None):
    """Return the look that finds each record new; those of some ranks come some looks later.

    Args:
        table: all records.
        every: seconds between two looks.
        late: looks by which the records of a rank come later, by rank.
    """
    ends = table[START] + table["step_seconds"]
    later = np.array([(late or {}).get(rank, 0) for rank in table["rank"].tolist()])
    return np.ceil((ends - ends.min()) / every).to_numpy(dtype=int) + later


def at_looks(table, every, late=None):
    """Yield the records that each look finds new."""
    look, columns = looks_of(table, every, late), columns_of(table)
    for number in range(int(look.max()) + 2):
        yield columns.at(look == number)


def so_far(table, every, number):
    """Return the records that a look and those before it find."""
    return table[looks_of(table, every) <= number]


def streamed(table, every, late=None):
    followed = FollowedJobs()
    world = int(table["rank"].max()) + 1
    return [
        followed.follow("a/b", fresh, layout(world))
        for fresh in at_looks(table, every, late)
        if len(fresh) or followed.knows("a/b")
    ]


def whole(table):
    """Judge all records at once."""
    return detect_latest(FrameTable(table), layout(int(table["rank"].max()) + 1))


def plain(detection):
    """Return what is to be the same, without what only a copy of the state rounds otherwise."""
    return [
        (one.kind, one.ranks, one.nodes, one.since, one.until, one.observed, one.expected, one.cost)
        for one in detection.incidents
    ]


FAULTS = {
    "none": (),
    "slow rank": (Fault("compute", (5,), 0.6, 80),),
    "slow rank that recovers": (Fault("compute", (5,), 0.6, 60, 120),),
    "slow input": (Fault("data", (2,), 0.7, 80),),
    "stalls": (Fault("compute", (1,), 1.5, 60, share=0.1),),
    "another rank later": (Fault("compute", (5,), 0.6, 50, 100), Fault("compute", (2,), 0.8, 120)),
    "all ranks": (Fault("compute", tuple(range(8)), 0.5, 80),),
    "waits for a CPU": (Fault("cpu", (3,), 0.6, 80),),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_streamed_job_has_the_incidents_of_a_look_at_all_records(fault):
    table = records(Job(steps=160, faults=FAULTS[fault]), seed=7)
    found = plain(whole(table))
    assert plain(streamed(table, 5.0)[-1]) == plain(streamed(table, 1.7)[-1]) == found
    assert bool(found) == bool(FAULTS[fault])


@pytest.mark.parametrize("fault", ["another rank later"])
def test_an_incident_of_a_streamed_job_is_known_one_look_later_at_most(fault):
    table = records(Job(steps=200, faults=FAULTS[fault]), seed=3)
    seen = [len(plain(one)) for one in streamed(table, 5.0)]
    opened = [number for number in range(1, len(seen)) if seen[number] > seen[number - 1]]
    assert len(opened) == 2
    for number in opened:
        known = plain(whole(so_far(table, 5.0, number - 2)))
        assert len(known) <= seen[number - 1]


@pytest.mark.parametrize("looks", [1, 3])
def test_ranks_that_are_always_late_are_heard(looks):
    table = records(Job(steps=140, faults=(Fault("compute", (5,), 0.6, 80),)), seed=7)
    late = {0: looks, 5: looks, 6: 1}
    found = plain(streamed(table, 5.0, late)[-1])
    assert found == plain(whole(table))
    assert [(kind, ranks) for kind, ranks, *_ in found] == [("gpu_compute", (5,))]


def test_a_rank_that_falls_silent_delays_the_others_by_no_look():
    table = records(Job(steps=130, faults=FAULTS["slow rank"]), seed=7)
    table = table[(table["rank"] != 1) | (table["step"] < 70)]
    found = streamed(table, 5.0)
    opened = next(number for number, one in enumerate(found) if plain(one))
    assert not plain(whole(so_far(table, 5.0, opened - 1)))
    assert plain(found[-1]) == plain(whole(table))


@pytest.mark.parametrize("last", [159, 125])
def test_no_incident_ends_while_the_records_of_its_rank_are_awaited(last):
    """Steps 100 to 130 of one node come together, as after a restart of its agent."""
    table = records(Job(steps=160, faults=(Fault("compute", (5,), 0.6, 60, last),)), seed=7)
    steps, ends = table["step"], table[START] + table["step_seconds"]
    kept_back = table["rank"].isin((4, 5, 6, 7)) & steps.between(100, 130)
    come = ends.where(~kept_back, ends[steps == 130].max())
    followed, told, columns = FollowedJobs(), [], columns_of(table)
    for now in np.arange(come.min() + 1.9, come.max() + 4.0, 2.0):
        fresh = columns.at(((come > now - 2.0) & (come <= now)).to_numpy())
        (incident,) = followed.follow("a/b", fresh, layout(8)).incidents or (None,)
        told.append((now, incident))
    opened = next(now for now, one in told if one)
    back = ends[steps == 130].max()
    assert [one.until for now, one in told if opened <= now < back] == (
        [None] * sum(opened <= now < back for now, _ in told)
    )
    assert (told[-1][1].until is None) == (last == 159)


def test_a_restart_is_the_same_wherever_looks_end():
    first = records(Job(steps=90), seed=1)
    again = records(Job(steps=120, faults=(Fault("compute", (3,), 0.6, 60),)), seed=2)
    again[START] += float(first[START].max() - again[START].min()) + 40.0
    table = pd.concat([first, again], ignore_index=True)
    found = streamed(table, 5.0)[-1]
    assert plain(found) == plain(whole(table))
    assert [one.ranks for one in found.incidents] == [(3,)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_jobs_of_few_ranks_are_judged(ranks):
    table = records(Job(ranks=ranks, steps=150), seed=4)
    assert plain(streamed(table, 5.0)[-1]) == plain(whole(table))


def test_a_short_job_is_judged_as_soon_as_by_a_look_at_all_records():
    table = records(Job(steps=30, faults=(Fault("compute", (5,), 0.6, 4),)), seed=7)
    assert plain(streamed(table, 5.0)[-1]) == plain(whole(table))


FIXTURES = Path(__file__).parent / "fixtures"
RECORDED = sorted(
    (
        *FIXTURES.glob("gloo_jobs/*.parquet"),
        *FIXTURES.glob("nccl_jobs/*.parquet"),
        *FIXTURES.glob("running_jobs/*_[1-9].parquet"),
    )
)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_jobs_have_the_same_incidents_streamed(path):
    table = pd.read_parquet(path)
    with np.errstate(all="ignore"):
        assert plain(streamed(table, 5.0)[-1]) == plain(whole(table))


def test_records_that_are_sent_twice_are_judged_once():
    table = records(Job(steps=120, faults=FAULTS["slow rank"]), seed=7)
    followed = FollowedJobs()
    for fresh in at_looks(table, 5.0):
        found = followed.follow("a/b", fresh, layout(8))
        found = followed.follow("a/b", fresh, layout(8))
    assert plain(found) == plain(whole(table))


def test_what_a_job_keeps_does_not_grow():
    followed = FollowedJobs()
    sizes = []
    for part in range(4):
        table = records(Job(steps=400), seed=part)
        table["step"] += 400 * part
        table[START] += 500.0 * part
        for fresh in at_looks(table, 5.0):
            followed.follow("a/b", fresh, layout(8))
        sizes.append(len(json.dumps(document(dict(followed.jobs())["a/b"]))))
    assert max(sizes) < 1.1 * sizes[0]
