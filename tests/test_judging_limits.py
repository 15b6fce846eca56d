"""How much is kept of jobs that are judged, and when: at each limit and just beyond it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import Account
from rankscope_analyzers.steps.rows import Rows
from rankscope_analyzers.stragglers import diagnosis, incident_findings, verdict
from rankscope_analyzers.stragglers.assembly import Assembler
from rankscope_analyzers.stragglers.baselines import is_new_pace
from rankscope_analyzers.stragglers.detector import Detector, RunLength
from rankscope_analyzers.stragglers.feed import Detection, Feed
from rankscope_analyzers.stragglers.followed_jobs import FollowedJob, FollowedJobs
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.judged_steps import Step
from rankscope_analyzers.stragglers.quantities import Steps
from rankscope_analyzers.stragglers.rank_zero_work import RankZeroWaits
from rankscope_analyzers.stragglers.view import PARTS
from straggler_views import ranks, shape

NOW = 1_760_000_000.0
BY_GROUPS = Layout(2, 1, 1, 0, wall=True, by_groups=True)
EIGHT = Layout(8, 1, 1, 1, wall=False)


def incident(kind="gpu_compute", **changes):
    return Incident(kind, 0.0, 0.0, None, (), (), -1, 0.1, 0.5, 1.2, 1.0, **changes)


def of_rank_zero(count, same=False):
    step = np.full(count, 5) if same else np.arange(count)
    zeros = np.zeros(count, dtype=np.int64)
    lasted = {"step_seconds": np.full(count, 0.9)}
    return Rows(np.arange(count), step, zeros, zeros, 100.0 + step, lasted, {})


@pytest.mark.parametrize(("steps", "begun"), [(9, False), (10, True)])
def test_ten_steps_show_how_many_ranks_a_run_has(steps, begun):
    assembler = Assembler(BY_GROUPS, Account())
    assert list(assembler.add(of_rank_zero(steps))) == []
    assert bool(list(assembler.release(np.array([0])))) is begun


@pytest.mark.parametrize(("last", "found"), [(19, (0, True)), (20, (100, True))])
def test_a_rank_that_was_not_there_is_taken_in_if_it_has_ten_of_twenty_steps(last, found):
    index = np.array([0, 2, 4, 6, 8, 10, 12, 14, 16, last])
    nowhere = np.full(len(index), -1)
    assert Assembler(BY_GROUPS, Account())._find_growth(nowhere, index, 0, 100) == found


@pytest.mark.parametrize(("steps", "judged"), [(8218, False), (8219, True)])
def test_a_block_is_65_536_records_of_all_ranks(steps, judged):
    """Of eight ranks 8,192 steps, after ten that show these and before sixteen that may change."""
    assert bool(list(Assembler(EIGHT, Account()).add(of_rank_zero(steps)))) is judged


@pytest.mark.parametrize(("records", "held"), [(512, 512), (513, 1)])
def test_eight_blocks_wait_for_a_step_before_those_that_repeat_others_go(records, held):
    assembler = Assembler(EIGHT, Account(), 64)
    assert list(assembler.add(of_rank_zero(records, same=True))) == []
    assert assembler.held == held


@pytest.mark.parametrize(("numbers", "full"), [(262_144, False), (262_145, True)])
def test_a_quarter_of_a_million_durations_wait_until_a_run_is_known_to_be_short(numbers, full):
    feed = Feed(EIGHT)
    feed._pending_blocks = [SimpleNamespace(steps=SimpleNamespace(step=np.empty(numbers)))]
    assert feed._is_pending_full() is full


class Watched(Detector):
    """Notes which steps are judged, and which of them as long ones."""

    def __init__(self):
        super().__init__()
        self.judged, self.long = [], []

    def _take_long_step(self, run, step, counter, clock, longest=np.inf):
        self.long.append(counter)

    def _push(self, run, long, steps):
        self.judged += steps.rows.tolist()


@pytest.mark.parametrize(("present", "judged"), [(3, 0), (4, 1)])
def test_a_step_is_judged_that_half_of_the_ranks_have_reported(present, judged):
    detector = Watched()
    detector.start_run(shape())
    detector._warm_up = 0
    step = ranks(dict.fromkeys(range(present), 1.0), np.nan)[None]
    steps = Steps(step, 0.0 * step, 0.6 * step, 0.2 * step)
    detector.feed(np.array([7]), np.array([1.0]), steps)
    assert len(detector.judged) == judged


@pytest.mark.parametrize(("before", "long"), [(29, [7]), (30, [])])
def test_three_of_ten_steps_may_be_marked_as_special(before, long):
    detector = Watched()
    detector._marked_count = before
    detector._special_steps = SimpleNamespace(judge=lambda *_: (True, None))
    run = SimpleNamespace(is_comparable=lambda *_: True, means=True)
    describe = {"describe": lambda *_: SimpleNamespace(seconds=0.0)}
    steps = SimpleNamespace(add_duration=lambda _: None, **describe)
    found = SimpleNamespace(now=SimpleNamespace(rest=[None]), waiting=[], most_at_once=9)
    step = Step(7, 0.0, 100, marked=True, duration=1.0, timed=1.0, averages=1.0)
    detector._step(run, steps, found, 0, step)
    assert (detector.long, len(found.waiting)) == (long, 1 - len(long))


@pytest.mark.parametrize(("clock", "usual"), [(86_399.0, False), (86_400.0, True)])
def test_what_slows_all_ranks_for_a_day_is_usual(clock, usual):
    assert is_new_pace(incident("global_slowdown"), clock) is usual
    for part in ("exchange", "most"):
        assert not is_new_pace(incident("global_slowdown", shown_by=part), clock)


@pytest.mark.parametrize(("cost", "severity"), [(0.0999, "ticket"), (0.1, "page")])
def test_a_tenth_of_every_step_is_worth_a_page(cost, severity):
    frame = SimpleNamespace(
        job_id="job", world_size=8, starts=np.zeros((1, 8)), step=np.full((1, 8), 100.0),
        data=np.zeros((1, 8)), usable=np.ones(1, dtype=bool), without_gpus=frozenset(),
    )  # fmt: skip
    (found,) = incident_findings.findings(frame, [incident(cost=cost)])
    assert (found.severity, found.cost.lost_fraction) == (severity, pytest.approx(cost))
    assert found.cost.gpu_hours == pytest.approx(cost * 100.0 * 8 / 3600)


@pytest.mark.parametrize(("more", "moved"), [(0.026, False), (0.028, True)])
def test_a_stage_within_two_per_cent_of_the_mean_keeps_its_layers(more, moved):
    action = incident_findings._move_layers((1.0, 1.0, 1.0, 1.0 + more))
    assert ("from stage 3" in action) is moved


@pytest.mark.parametrize(("seconds", "told"), [(2.49, 0), (2.5, 1)])
def test_a_fortieth_of_the_time_that_all_wait_for_rank_zero_is_told(seconds, told):
    waits = RankZeroWaits(steps=2, seconds=seconds)
    found = Detection((), (), rank_zero_waits=waits, length=RunLength(100, 100.0))
    assert len(list(diagnosis._asides(found))) == told


@pytest.mark.parametrize(("steps", "sure"), [(32, 0.5), (63, 63 / 64), (64, 1.0), (128, 1.0)])
def test_after_64_steps_nothing_found_is_as_sure_as_it_gets(steps, sure):
    frame = SimpleNamespace(ranks=range(8), world_size=8)
    assert verdict._coverage(frame, steps, frozenset(PARTS)) == pytest.approx(sure)


def at(*seconds, lasted=1.0):
    """Return one record of each rank."""
    starts = NOW + np.array(seconds)
    step = {"step": 1, "node": "n", "t_start_unix_seconds": starts, "step_seconds": lasted}
    return pd.DataFrame({"rank": range(len(seconds)), **step})


@pytest.mark.parametrize(
    ("lasted", "behind", "awaited"),
    [(1.0, 120.0, True), (1.0, 121.0, False), (41.0, 123.0, True), (41.0, 124.0, False)],
)
def test_a_rank_is_waited_for_two_minutes_or_three_steps(lasted, behind, awaited):
    jobs = FollowedJobs()
    jobs.update("job", at(0.0, 0.0, -behind, lasted=lasted), BY_GROUPS)
    ((_, job),) = jobs.jobs()
    assert job._judged_until == NOW - (behind if awaited else 0.0)


@pytest.mark.parametrize(("later", "another"), [(1800.0, False), (1801.0, True)])
def test_a_job_that_was_silent_for_half_an_hour_is_another_one(later, another):
    jobs = FollowedJobs()
    jobs.update("job", at(0.0), BY_GROUPS)
    ((_, before),) = jobs.jobs()
    jobs.update("job", at(later), BY_GROUPS)
    ((_, after),) = jobs.jobs()
    assert (after is not before) is another


class Half(FollowedJob):
    """A job whose records all wait for another rank's."""

    def _take(self, records):
        return records


class Table(tuple):
    """Records of which only their number matters."""

    __slots__ = ()
    columns = ()

    def followed_by(self, newer):
        return newer


@pytest.mark.parametrize(("held", "by"), [(7, "the state"), (8, "a copy")])
def test_records_of_more_than_four_steps_are_judged_by_a_copy_of_the_state(held, by):
    job = Half(EIGHT)
    job._awaited_count = 2
    state, copy = (Detection((), (), notes=(who,)) for who in ("the state", "a copy"))
    job._feed = SimpleNamespace(held=held, latest=lambda: state, peek=lambda _: copy)
    assert job.follow(Table([1]), Table())[0].notes == (by,)


def test_4096_jobs_are_followed_and_first_steps_of_others_forgotten_beyond_as_many():
    known = FollowedJobs()
    for number in range(4097):
        known._keep(str(number), SimpleNamespace(last_poll=0))
        known.first_steps[str(number)] = 1.0
    assert len(known) == 4096
    known.start_poll()
    assert len(known.first_steps) == 4096
    known.first_steps["another"] = 1.0
    del known.first_steps["4096"]
    known.start_poll()
    assert "another" in known.first_steps


@pytest.mark.parametrize(("polls", "known"), [(60, 1), (61, 0)])
def test_a_job_is_forgotten_after_sixty_polls_without_it(polls, known):
    jobs = FollowedJobs()
    jobs._keep("job", SimpleNamespace(last_poll=0))
    for _ in range(polls):
        jobs.start_poll()
    assert len(jobs) == known
