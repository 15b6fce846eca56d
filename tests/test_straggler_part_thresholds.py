"""Thresholds of the parts that find stragglers: just below each and just beyond it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.findings.finding import Evidence, Where
from rankscope_analyzers.steps.layout import ReportedGroups
from rankscope_analyzers.stragglers import long_steps, rank_grid, unobserved_ranks
from rankscope_analyzers.stragglers.detector import Detector, RunLength
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.judged_steps import Step
from rankscope_analyzers.stragglers.long_steps import LongStep
from rankscope_analyzers.stragglers.peer_evidence import _during
from rankscope_analyzers.stragglers.periodic_exchange import PeriodicExchanges
from rankscope_analyzers.stragglers.quantities import Steps, _is_rest_separate
from rankscope_analyzers.stragglers.rank_zero_work import RankZeroWork
from rankscope_analyzers.stragglers.sampled_steps import with_copies
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.view import Candidate
from test_incidents import NOW, seen


@pytest.mark.parametrize(("ranks", "sizes"), [(4, (2, 2, 2)), (3, (2, 2, 1))])
def test_ranks_fill_half_of_a_grid(ranks, sizes):
    stage = np.array([0, 0, 1, 1])[:ranks]
    replica = np.array([0, 1, 0, 1])[:ranks]
    tensor = np.array([0, 1, 1, 0])[:ranks]
    assert rank_grid._filled(np.arange(ranks), stage, replica, tensor).shape == sizes


@pytest.mark.parametrize(("largest", "sizes"), [(7, (8, 7, 1)), (8, (1, 15, 1))])
def test_stages_of_unequal_size_have_four_positions_for_each_rank(largest, sizes):
    stage = np.array([0] * largest + [1, 2, 3, 4, 5, 6, 7])
    assert rank_grid._staged(np.arange(len(stage)), stage).shape == sizes


@pytest.mark.parametrize(("records", "odd", "none"), [(10, 1, False), (19, 2, True)])
def test_groups_are_no_arrangement_if_more_than_a_tenth_of_the_records_name_others(
    records, odd, none
):
    rank = np.zeros(records, dtype=np.int64)
    groups = {"pp_stage": (np.arange(records) >= records - odd).astype(np.int64)}
    reported = ReportedGroups(rank, np.arange(records), groups)
    assert rank_grid.is_contradicting(reported) is none


def longer(early, newest):
    wait = np.concatenate([early, newest])
    return unobserved_ranks._longer(SimpleNamespace(step=np.ones((len(wait), 1))), wait)


@pytest.mark.parametrize(("excess", "waits"), [(0.019, False), (0.021, True)])
def test_peers_wait_for_a_fiftieth_of_a_step(excess, waits):
    assert (longer(np.zeros(30), np.full(16, excess)) > 0) == waits


@pytest.mark.parametrize(("excess", "waits"), [(0.18, False), (0.19, True)])
def test_what_peers_wait_exceeds_five_standard_errors(excess, waits):
    varied = excess + 0.1 * np.array([-1.0, 1.0] * 8)  # 5 * 1.4826 * 0.1 / sqrt(16) = 0.185
    assert (longer(np.zeros(30), varied) > 0) == waits


def test_the_first_thirty_steps_are_what_later_ones_are_compared_with():
    early = np.array([1.0] * 14 + [0.0] * 16 + [1.0] * 20)
    assert longer(early, np.ones(16)) == 1.0


@pytest.mark.parametrize(("copies", "named"), [(0.149, False), (0.151, True)])
def test_half_of_what_a_rank_computes_longer_is_waiting_for_copies(copies, named):
    records = pd.DataFrame(
        {"rank": [3, 4], "copies_seconds": [copies, 0.1], "t_start_unix_seconds": NOW}
    )
    evidence = (Evidence("compute_seconds", 0.6, 0.5, "seconds", "compute"),)
    slow = seen("gpu_compute", where=Where(ranks=(3,)), evidence=evidence)
    assert ("waits" in with_copies(slow, records).summary) == named


@pytest.mark.parametrize(("early", "inside"), [(0.4, True), (0.6, False)])
def test_a_step_belongs_to_an_incident_that_begins_half_a_second_later(early, inside):
    frame = SimpleNamespace(starts=np.array([[NOW - early]]), usable=np.array([True]))
    assert _during(frame, SimpleNamespace(since=NOW, until=None)).tolist() == [inside]


@pytest.mark.parametrize(("rest", "separate"), [(0.0049, False), (0.0051, True)])
def test_the_rest_is_known_if_it_is_half_a_per_cent_of_the_step(rest, separate):
    whole = np.ones((4, 1, 2, 1))
    steps = Steps(whole, 0 * whole, whole - rest, 0 * whole)
    assert _is_rest_separate(steps, rest * whole) == separate


def test_what_is_usual_for_a_rank_moves_by_a_seventh():
    usual = long_steps._updated(np.array([1.0, 1.0, np.nan]), np.array([2.0, np.nan, 3.0]))
    assert usual.tolist() == pytest.approx([1.15, 1.0, 3.0])


@pytest.mark.parametrize(
    ("steps", "seconds", "short"),
    [(47, 100.0, True), (48, 100.0, False), (1000, 5.9, True), (1000, 6.0, False)],
)
def test_a_short_run_has_less_than_48_steps_or_six_seconds(steps, seconds, short):
    assert RunLength(steps, seconds).is_short == short


def shape():
    return Shape(1, 2, 1, 1, wall=False, nodes=np.zeros((1, 2, 1), dtype=np.int64))


@pytest.mark.parametrize(("steps", "warm_up"), [(None, 12), (100, 12), (20, 5)])
def test_twelve_steps_warm_up_or_a_quarter_of_a_short_run(steps, warm_up):
    detector = Detector()
    detector.start_run(shape(), None if steps is None else RunLength(steps, 100.0))
    assert detector._warm_up == warm_up


class Evaluated(Detector):
    """Notes how much longer than usual the pauses are that it reports."""

    def __init__(self):
        super().__init__()
        self.froze = []

    def _freeze(self, run, step, clock):
        self.froze.append(step.times)


class Taking:
    """A run that takes each step."""

    usable = 0
    means = False
    rest_is_unmeasured = False
    exchanges = PeriodicExchanges()

    def is_comparable(self, timed):
        return True

    def push(self, now, rows, counters):
        self.usable += len(rows)
        return ()

    def add_pause(self, seconds, position, counter):
        pass


@pytest.mark.parametrize(("long", "taken"), [(3, 0), (4, 4)])
def test_the_fourth_long_step_in_a_row_is_the_pace(long, taken):
    detector, run = Evaluated(), Taking()
    detector._special_steps = SimpleNamespace(judge=lambda *_: (True, None))
    now = SimpleNamespace(duration=[9.0], rest=[None])
    now.single_step = lambda _: now
    found = SimpleNamespace(now=now, waiting=[])
    ignore = {"learn": lambda *_: None, "add_duration": lambda _: None}
    steps = SimpleNamespace(is_long=lambda _: True, **ignore)
    for counter in range(long):
        step = Step(counter, 0.0, 100, marked=False, duration=9.0, timed=1.0, averages=1.0)
        detector._step(run, steps, found, 0, step)
    assert run.usable == taken


@pytest.mark.parametrize(
    ("seconds", "times", "froze"), [(5.0, 20.0, 1), (4.9, 100.0, 0), (100.0, 19.9, 0)]
)
@pytest.mark.parametrize("position", [1, -1])
def test_a_pause_of_five_seconds_and_twenty_steps_is_reported(position, seconds, times, froze):
    own, others = (seconds, 0.0) if position >= 0 else (0.0, seconds)
    step = LongStep(
        position,
        own,
        times,
        housekeeping=False,
        input=False,
        excess=np.zeros(2),
        waits=np.full(2, others),
        waited=others,
    )
    detector = Evaluated()
    detector._take_long_step(Taking(), step, 7, NOW)
    assert len(detector.froze) == froze


def test_the_names_of_65_536_nodes_are_remembered():
    detector = Detector()
    numbers = detector.node_numbers([str(number) for number in range(65_537)])
    assert numbers.tolist()[-2:] == [65_535, -1]


def incident(since=100.0, until=150.0, **changes):
    values = (since, since, until, (3,), ("n1",), -1, 0.1, 0.9, 1.2, 1.0)
    return Incident("gpu_compute", *values, **changes)


def test_an_incident_is_merged_with_what_an_earlier_one_cost():
    alone, before = incident(200.0, None), incident(cost=0.2)
    once = alone.merged_with(before)
    assert (once.earlier, once.lasted_earlier, once.lost_earlier) == (1, 50.0, pytest.approx(10.0))
    assert incident(200.0).merged_with(incident()).lost_earlier == 0.0


def test_all_ranks_have_waited_for_rank_zero_in_no_step_at_first():
    work = RankZeroWork()
    work.add(7, 2.0, 0.5)
    assert (work.waits.steps, work.waits.seconds) == (1, 2.0)


def test_slow_work_of_rank_zero_began_after_its_last_usual_work():
    work = RankZeroWork()
    for counter in range(10, 50, 10):
        assert work.add(counter, 1.0, 0.5) == (True, None)
    assert work.add(60, 5.0, 0.5) == (False, None)
    assert work.add(70, 5.0, 0.5)[1].lasted_seconds == (20 + 10) * 0.5 + 2 * 5.0
    work.add(80, 1.0, 0.5)
    work.add(90, 5.0, 0.5)
    assert work.add(100, 5.0, 0.5)[1].lasted_seconds == 20 * 0.5 + 2 * 5.0


def test_what_nobody_says_of_a_run_or_of_a_fault_is_unknown():
    run = shape()
    assert (run.timing, run.job_ranks) == (0, 0)
    fault = Candidate("gpu_compute", 0.1, (3,), -1, 1.2, 1.0)
    assert (fault.certainty, fault.began, fault.ended) == (1.0, 0, -1)
    assert (
        LongStep(-1, 0.0, 1.0, housekeeping=False, input=False, excess=None, waits=None).waited
        == 0.0
    )


def test_a_job_has_no_steps_at_first():
    assert Detector().length == RunLength(0, 0.0)
