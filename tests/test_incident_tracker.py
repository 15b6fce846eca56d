"""How long a cause holds before it is told, and what long steps say: near misses and hits."""

from types import SimpleNamespace

import numpy as np
import pytest

from rankscope_analyzers.stragglers.incident_tracker import IncidentTracker
from rankscope_analyzers.stragglers.incidents import Moment
from rankscope_analyzers.stragglers.long_steps import LongSteps, RecurringSteps
from rankscope_analyzers.stragglers.rank_zero_work import RankZeroWork
from rankscope_analyzers.stragglers.special_steps import SpecialStepFilter
from rankscope_analyzers.stragglers.view import Candidate
from straggler_views import ranks, shape


def cause(kind="gpu_compute", cost=0.1, culprits=(3,), **changes):
    return Candidate(kind, cost, culprits, -1, 2.0, 1.0, **changes)


def nodes_of(candidate):
    return ("node-0",) * len(candidate.ranks)


class Job:
    """Evaluations of a job, each of which finds what is given."""

    def __init__(self, every=10.0):
        self.tracker = IncidentTracker()
        self.every = every
        self.now = -every

    def finds(self, *found, times=1, step_seconds=0.0):
        for _ in range(times):
            self.now += self.every
            moment = Moment(self.now, self.now, step_seconds=step_seconds)
            self.tracker.update(found, "kernels", moment, nodes_of)
        return [(one.kind, one.ranks, one.until is None) for one in self.tracker.incidents]

    def concludes(self, observed):
        moment = Moment(self.now, self.now)
        return self.tracker.latest_incidents(observed, moment, nodes_of)


SLOW = ("gpu_compute", (3,), True)
"""The one incident of a slow rank that goes on."""


@pytest.mark.parametrize(
    ("kind", "cost", "holds"),
    [
        ("gpu_compute", 0.055, 3),
        ("gpu_compute", 0.065, 2),
        ("network_link", 0.02, 3),
        ("host_transient", 0.02, 2),
    ],
)
def test_a_cause_wins_three_times_and_twice_if_it_is_plain(kind, cost, holds):
    job = Job()
    assert job.finds(cause(kind, cost), times=holds - 1) == []
    assert job.finds(cause(kind, cost)) == [(kind, (3,), True)]


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        (cause(), 5),
        (cause("global_slowdown", culprits=()), 30),
        (cause("storage_checkpoint", culprits=()), 30),
        (cause("network_link", culprits=()), 5),
    ],
    ids=["a rank", "all", "storage", "a link"],
)
def test_a_cause_holds_for_seconds_and_what_slows_all_for_longer(found, seconds):
    job = Job(every=1.0)
    job.finds(found, times=40)
    (told,) = job.tracker.incidents
    assert (told.since, told.detected_at) == (0, seconds)


def test_an_incident_ends_after_six_evaluations_without_its_cause():
    job = Job()
    job.finds(cause(), times=2)
    assert job.finds(times=5) == [SLOW]
    assert job.finds() == [("gpu_compute", (3,), False)]


@pytest.mark.parametrize(("pause", "incidents"), [(13, 1), (14, 2)])
def test_a_cause_that_is_back_within_fifteen_evaluations_goes_on(pause, incidents):
    job = Job()
    job.finds(cause(), times=2)
    job.finds(times=6 + pause)
    assert len(job.finds(cause(), times=2)) == incidents


@pytest.mark.parametrize(
    ("meanwhile", "share"),
    [(0.8, 0.0), (0.9, 1 - 0.8 / 0.9), (1.0, 0.2), (2.0, 0.2), (0.5, 0.0), (0.0, 0.0)],
    ids=["as without it", "half as slow", "as slow", "slower", "quicker", "unknown"],
)
@pytest.mark.parametrize("pause", [5, 12], ids=["open", "ended and back"])
def test_a_fault_that_comes_and_goes_costs_in_between_what_steps_took_longer(
    meanwhile, share, pause
):
    job = Job()
    job.finds(cause(cost=0.2), times=4, step_seconds=1.0)
    job.finds(times=pause, step_seconds=meanwhile)
    job.finds(cause(cost=0.2), times=4, step_seconds=1.0)
    (told,) = job.tracker.incidents
    # The first of all evaluations only announced it.
    assert told.cost == pytest.approx((7 * 0.2 + pause * share) / (7 + pause))


def test_what_follows_a_fault_is_no_part_of_its_cost():
    job = Job()
    job.finds(cause(cost=0.2), times=4, step_seconds=1.0)
    job.finds(times=30, step_seconds=0.8)
    (told,) = job.tracker.incidents
    assert told.cost == pytest.approx(0.2)


def test_another_culprit_has_to_be_it_four_times():
    job = Job()
    job.finds(cause(), times=2)
    assert job.finds(cause(culprits=(5,)), times=3) == [SLOW]
    assert job.finds(cause(culprits=(5,))) == [
        ("gpu_compute", (3,), False),
        ("gpu_compute", (5,), True),
    ]


def test_another_cause_that_cannot_stand_beside_the_first_has_to_win_ten_times():
    job = Job()
    job.finds(cause(), times=2)
    heavy = cause("partition_imbalance", 0.5)
    assert job.finds(cause(), heavy, times=9) == [SLOW]
    assert [kind for kind, *_ in job.finds(cause(), heavy)] == [
        "gpu_compute",
        "partition_imbalance",
    ]


def test_a_second_cause_beside_the_first_has_to_be_there_six_times():
    job = Job()
    job.finds(cause(), times=2)
    loader = cause("data_loader", culprits=(6,))
    assert job.finds(cause(), loader, times=5) == [SLOW]
    assert job.finds(cause(), loader) == [SLOW, ("data_loader", (6,), True)]


def frozen(job, culprits, seconds=8.0):
    candidate = Candidate("host_transient", 0.99, culprits, -1, seconds, 0.0, shown_by="freeze")
    job.now += seconds
    job.tracker.add_freeze(candidate, Moment(job.now, job.now - seconds), nodes_of)


def test_a_rank_that_stands_still_twice_stood_still_for_no_longer_than_that():
    job = Job()
    for _ in range(2):
        frozen(job, (3,))
        job.finds(times=10)
    assert [one.until - one.since for one in job.tracker.incidents] == [8, 8]


@pytest.mark.parametrize("earlier", ["a freeze of some rank", "short stalls"])
def test_a_rank_that_stands_still_is_told_whatever_the_host_did_shortly_before(earlier):
    job = Job()
    if earlier == "short stalls":
        job.finds(cause("host_transient", 0.07), times=2)
        job.finds(times=6)
    else:
        frozen(job, ())
    frozen(job, (3,), 40.0)
    newest = job.tracker.incidents[-1]
    assert (newest.ranks, newest.shown_by, newest.observed) == ((3,), "freeze", 40.0)


def test_a_second_cause_is_told_while_the_first_one_comes_and_goes():
    job = Job()
    job.finds(cause(), times=2)
    link = cause("network_link", 0.06, (6,))
    for found in ((cause(), link), (link,), (cause(), link), (link,), (cause(), link)):
        assert job.finds(*found) == [SLOW]
    assert job.finds(link) == [SLOW, ("network_link", (6,), True)]


@pytest.mark.parametrize(("observed", "told"), [(3.2, True), (3.5, False)])
def test_at_the_end_of_a_short_job_three_fifths_of_its_time_are_enough(observed, told):
    job = Job(every=1.0)
    assert job.finds(cause(), times=3) == []
    assert bool(job.concludes(observed)) is told
    crowded = Job(every=1.0)
    crowded.finds(cause(shown_by="cpu_wait"), times=3)
    assert not crowded.concludes(observed)


@pytest.mark.parametrize(
    ("cost", "certainty", "sure"), [(0.1, 1.0, 0.48), (0.3, 0.5, 0.32), (0.9, 1.0, 0.8)]
)
def test_what_costs_more_is_surer_and_timing_alone_is_never_certain(cost, certainty, sure):
    job = Job()
    job.finds(cause(cost=cost, certainty=certainty), times=2)
    assert job.tracker.incidents[0].confidence == pytest.approx(sure)


def last_of(*lengths, apart=20, step_seconds=0.5):
    """Return the fault found by the last of several pieces of work."""
    all_of_them = RankZeroWork()
    for number, seconds in enumerate(lengths, 1):
        _, found = all_of_them.add(number * apart, seconds, step_seconds)
    return found


@pytest.mark.parametrize(
    ("lengths", "told"),
    [
        ((1, 1, 1, 5, 5), True),
        ((1, 1, 1, 5), False),
        ((1, 1, 5, 5), True),
        ((1, 5, 5), False),
        ((1, 1, 1, 1.9, 1.9), False),
        ((1, 1, 1, 2.1, 2.1), True),
        ((1, 1.9, 5, 5), True),
        ((1, 2.1, 5, 5), False),
        ((0.45, *[1] * 11, 5, 5), False),
        ((0.45, *[1] * 12, 5, 5), True),
    ],
    ids=[
        "twice", "once", "after two", "after one", "not twice as long", "twice as long", "alike",
        "of two kinds", "still remembered", "forgotten",
    ],
)  # fmt: skip
def test_checkpoints_of_a_first_rank_are_slow_when_two_take_twice_their_usual_time(lengths, told):
    assert (last_of(*lengths) is not None) is told


@pytest.mark.parametrize(("seconds", "told"), [(0.095, False), (0.105, True)])
def test_checkpoints_of_a_tenth_of_a_second_wait_for_a_disk(seconds, told):
    assert (last_of(0.04, 0.04, seconds, seconds, apart=1) is not None) is told


@pytest.mark.parametrize(("apart", "told"), [(140, False), (120, True)])
def test_slow_checkpoints_that_cost_one_and_a_half_per_cent_of_the_time_are_told(apart, told):
    assert (last_of(1, 1, 3, 3, apart=apart, step_seconds=1.0) is not None) is told


def regular(*steps, earlier=1.0, between=0):
    """Say whether the last of some long steps comes as regularly as the others."""
    seen = RecurringSteps()
    for step in steps[:-1]:
        seen.is_regular(step, earlier)
    for filler in range(between):
        seen.is_regular(steps[-1] - 1, 1e-6 * filler)
    return seen.is_regular(steps[-1], 1.0)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ((10, 20, 30, 40), True),
        ((20, 30, 40), False),
        ((10, 20, 31, 40), False),
        ((5, 10, 15, 20), True),
        ((4, 8, 12, 16), False),
    ],
)
def test_four_long_steps_at_equal_distances_of_five_or_more_are_regular(steps, found):
    assert regular(*steps) is found


@pytest.mark.parametrize(("earlier", "found"), [(0.09, False), (0.11, True)])
def test_what_was_ten_times_shorter_was_something_else(earlier, found):
    assert regular(10, 20, 30, 40, earlier=earlier) is found


@pytest.mark.parametrize(("between", "found"), [(61, True), (62, False)])
def test_the_last_64_long_steps_are_remembered(between, found):
    assert regular(10, 20, 30, 40, between=between) is found


def quantities(duration=1.0, busy=1.0, **parts):
    """Return one step of eight ranks."""
    zero = np.zeros((1, 1, 8, 1))
    filled = {name: zero + value for name, value in parts.items()}
    values = {"input": zero, "rest": zero, "sync": zero, "rest_is_separate": True, "cpu_wait": None}
    return SimpleNamespace(duration=np.array([duration]), busy=zero + busy, **values | filled)


def learned(*durations):
    steps = LongSteps(shape())
    for duration in durations:
        steps.add_duration(duration)
        steps.learn(quantities(duration), np.array([0]))
    return steps


@pytest.mark.parametrize(
    ("before", "duration", "long"),
    [
        ([1.0] * 6, 1.95, False),
        ([1.0] * 6, 2.05, True),
        ([1.0] * 5, 9.0, False),
        ([0.001] * 6, 0.0035, False),
        ([0.001] * 6, 0.0045, True),
        ([1.0] * 30 + [3.0] * 14, 2.5, True),
        ([1.0] * 30 + [3.0] * 16, 2.5, False),
    ],
)
def test_a_long_step_takes_twice_the_usual_time_and_a_turn_of_the_scheduler_more(
    before, duration, long
):
    assert learned(*before).is_long(duration) is long


def blamed(excess, duration=3.0, **parts):
    """Return what is said of a step, usually of 1 s, in which ranks took so much longer."""
    return learned(*[1.0] * 6).describe(quantities(duration, 1.0 + ranks(excess), **parts), 0)


@pytest.mark.parametrize(
    ("excess", "place"),
    [
        ({3: 2.0, 5: 0.9}, 3),
        ({3: 2.0, 5: 1.1}, 3),
        (dict.fromkeys((4, 5, 6, 7), 0.9) | {3: 2.0}, 3),
        (dict.fromkeys((5, 6, 7), 1.1) | {3: 2.0}, 3),
        (dict.fromkeys((4, 5, 6, 7), 1.1) | {3: 2.0}, -1),
    ],
)
def test_a_rank_made_a_step_long_if_no_more_than_half_were_half_as_long(excess, place):
    assert blamed(excess).position == place


@pytest.mark.parametrize(("duration", "place"), [(4.9, 3), (5.1, -1)])
def test_a_rank_that_explains_less_than_half_did_not_make_a_step_long(duration, place):
    assert blamed({3: 2.0}, duration).position == place


@pytest.mark.parametrize(("part", "is_it"), [(1.3, False), (1.5, True)])
def test_seven_tenths_of_the_excess_say_what_a_rank_did(part, is_it):
    assert blamed({3: 2.0}, input=ranks({3: part})).input is is_it
    assert blamed({0: 2.0}, rest=ranks({0: part})).housekeeping is is_it
    assert not blamed({3: 2.0}, rest=ranks({3: part})).housekeeping


def ordinary(*rests, before=7):
    """Return which steps are ordinary after some without any rest."""
    steps = SpecialStepFilter((1, 8, 1))
    for _ in range(before):
        steps.judge(np.zeros((1, 8, 1)), 1.0)
    return [steps.judge(np.full((1, 8, 1), rest), 1.0)[0] for rest in rests]


@pytest.mark.parametrize(("rest", "special"), [(0.045, False), (0.055, True)])
def test_a_rest_of_all_of_a_twentieth_of_the_step_makes_it_special(rest, special):
    assert ordinary(rest) == [not special]
    assert ordinary(rest, before=6) == [True]


def test_after_a_special_step_one_is_left_out_and_the_fourth_in_a_row_is_the_pace():
    assert ordinary(1.0, 0.0, 0.0) == [False, False, True]
    assert ordinary(1.0, 1.0, 1.0, 1.0, 1.0) == [False, False, False, False, True]


@pytest.mark.parametrize(("rest", "special"), [(0.11, False), (0.16, True)])
def test_a_rest_that_swings_from_step_to_step_has_to_jump_out_of_its_noise(rest, special):
    steps = SpecialStepFilter((1, 8, 1))
    for number in range(30):
        steps.judge(np.full((1, 8, 1), 0.02 * (number % 2)), 1.0)
    assert steps.judge(np.full((1, 8, 1), rest), 1.0)[0] is not special
