"""Thresholds of what pages tell of ranks: just below each and just beyond it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope_agent.contract.metrics import pods, reported, training
from rankscope_analyzers.fusion.job_reports import READS
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers import endings, pauses, rank_progress, replica_groups
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.pace import OpenSpan, Pace, pace_of_pages
from rankscope_analyzers.layers.rank_locations import rank_number
from rankscope_analyzers.layers.training_events import recent_event, survivable
from test_endings import LAST, NOW, ranks
from test_hangs import stall


@pytest.mark.parametrize(
    ("last", "ended", "is_another"),
    [
        (100.9, None, True),  # the kernel tells the boot in whole seconds
        (101.0, None, False),
        (101.5, 90.0, False),
        (None, None, True),
        (None, 102.9, True),  # an agent may notice an end two seconds late
        (None, 103.0, False),
    ],
)
def test_a_process_follows_another_if_it_started_after_its_last_sign(last, ended, is_another):
    assert rank_progress.is_another(100.0, last, ended) == is_another


def alive(*offsets):
    """Return one page for each node, so many seconds before the newest."""
    text = 'rankscope_rank_alive{{job_id="job",rank="{}"}} 1\n'
    pages = [Page(f"n{rank}", NOW - ago, text.format(rank)) for rank, ago in enumerate(offsets)]
    return from_pages(pages, (training.RANK_ALIVE, pods.RANK_STARTED))


@pytest.mark.parametrize(("age", "known"), [(120.0, 1), (121.0, 0), (240.0, 0)])
def test_pages_tell_of_now_for_two_minutes(age, known):
    assert len(rank_progress.read(alive(0.0), "job", NOW + age)) == known


@pytest.mark.parametrize(("apart", "known"), [(45.0, 2), (46.0, 1), (90.0, 1)])
def test_pages_of_one_moment_are_45_seconds_apart(apart, known):
    assert len(rank_progress.read(alive(0.0, apart), "job", NOW)) == known


@pytest.mark.parametrize(
    ("nodes", "ahead", "first"),
    [(1, 0.04, []), (1, 0.06, [0]), (2, 0.9, []), (2, 1.1, [0])],
)
def test_the_first_rank_ended_clearly_before_the_others(nodes, ahead, first):
    times = {0: LAST, 1: LAST + ahead, 2: LAST + ahead}
    assert endings._first(times, {f"n{number}" for number in range(nodes)}, 0.0) == first


def sentences(one):
    job = JobView("job", {}, {}, frozenset())
    return " ".join(found.summary for found in endings.findings(from_pages([one], READS), job))


@pytest.mark.parametrize(("spread", "ordered"), [(0.45, True), (0.55, False), (0.9, False)])
def test_the_order_in_which_ranks_ended_together_is_shown(spread, ordered):
    times = [LAST, LAST + 0.01, LAST + 0.02, LAST + spread]
    over = sentences(ranks([0] * 4, rank_ended_timestamp_seconds=times))
    assert (", rank 0 before the others" in over) == ordered


@pytest.mark.parametrize(
    ("quiet", "step", "stopped"),
    [(4.9, 0.2, False), (5.1, 0.2, True), (9.9, 1.0, False), (10.1, 1.0, True)],
)
def test_a_stopped_rank_has_ended_no_step_for_five_seconds_and_ten_steps(quiet, step, stopped):
    held = ranks(
        [1],
        rank_stopped=[1],
        last_step_timestamp_seconds=[NOW - quiet],
        last_step_seconds=[step],
    )
    assert ("is stopped by a signal" in sentences(held)) == stopped


@pytest.mark.parametrize(
    ("quiet", "step", "lost"),
    [(59.0, 0.2, {0: [0, 1]}), (61.0, 0.2, {}), (99.0, 10.0, {0: [0, 1]}), (101.0, 10.0, {})],
)
def test_a_group_goes_on_while_it_waits_for_its_quorum_for_a_minute_or_ten_steps(quiet, step, lost):
    one = ranks(
        [0, 1, 1, 1],
        last_step_timestamp_seconds=[NOW - quiet] * 4,
        last_step_seconds=[step] * 4,
    )
    sizes = Page("n1", NOW, f'{one.text}rankscope_job_replica_group_ranks{{job_id="job"}} 2\n')
    series = (*replica_groups.READS, training.LAST_STEP_TIMESTAMP, training.LAST_STEP_SECONDS)
    seen = from_pages([sizes], series)
    assert replica_groups.recovering(seen, "job", range(4), [0]) == lost


def event(ago, last=None):
    name = "rankscope_training_last_event_timestamp_seconds"
    text = f'{name}{{job_id="job",rank="0",event="loader_worker_died"}} {NOW - ago}\n'
    if last is not None:
        text += f'rankscope_last_step_timestamp_seconds{{job_id="job",rank="0"}} {last}\n'
    return from_pages(
        [Page("n1", NOW, text)], (reported.TRAINING_EVENT, training.LAST_STEP_TIMESTAMP)
    )


@pytest.mark.parametrize(("ago", "news"), [(1799.0, True), (1801.0, False), (3599.0, False)])
def test_what_befell_a_rank_is_news_for_half_an_hour(ago, news):
    assert (recent_event(event(ago), "job", "loader_worker_died") is not None) == news


@pytest.mark.parametrize(("later", "survived"), [(9.0, False), (10.0, True), (19.0, True)])
def test_a_rank_that_ends_a_step_ten_seconds_later_trained_on(later, survived):
    series = event(100.0, NOW - 100.0 + later)
    (found,) = survivable(series, "job", "loader_worker_died", "loader_worker_died", "lost one")
    assert ("and trained on" in found.summary) == survived


@pytest.mark.parametrize(
    ("pace", "seconds"),
    [
        (Pace(), 60.0),
        (Pace(slow=12.0), 60.0),
        (Pace(slow=13.0), 65.0),
        (Pace(longest=30.0), 60.0),
        (Pace(longest=31.0), 62.0),
    ],
)
def test_no_step_may_end_for_five_slow_ones_or_twice_the_longest(pace, seconds):
    assert pace.allowed(60.0) == seconds


@pytest.mark.parametrize(("newest", "slow"), [(5.9, 6.0), (6.1, 6.1)])
def test_a_slow_step_is_taken_for_three_times_the_mean(newest, slow):
    readings = (("STEP_SECONDS", 20.0), ("STEPS", 10.0), ("LAST_STEP_SECONDS", newest))
    metrics = [(getattr(training, name), value) for name, value in readings]
    lines = (f'{metric.name}{{job_id="job",rank="0"}} {value}\n' for metric, value in metrics)
    seen = from_pages([Page("n0", NOW, "".join(lines))], [metric for metric, _ in metrics])
    assert pace_of_pages(seen, "job") == Pace(2.0, slow, newest)


@pytest.mark.parametrize(
    ("longest", "lasted", "runs"),
    [(None, 1799.0, True), (None, 1800.0, False), (100.0, 199.0, True), (100.0, 200.0, False)],
)
def test_a_span_runs_for_half_an_hour_or_twice_the_longest_so_far(longest, lasted, runs):
    assert pauses._runs(OpenSpan(0, "evaluation", 0.0, longest), lasted, 60.0) is runs


@pytest.mark.parametrize(("share", "works"), [(0.29, False), (0.3, True), (0.59, True)])
def test_a_rank_works_that_uses_three_tenths_of_a_core(share, works):
    assert pauses.works({0: replace(stall(0), cpu_share=share)}, [0]) == works


@pytest.mark.parametrize(
    ("text", "rank"), [("199999", 199_999), ("200000", None), ("00000001", None), ("-1", None)]
)
def test_ranks_are_numbers_below_200_000(text, rank):
    assert rank_number(text) == rank
