"""Ranks and jobs that end, start again or hang: what the training collector shows of them."""

from __future__ import annotations

import pytest

from collected_page import CREATED_NS, Clock, Page, collector
from rankscope_agent.contract.metrics import training as metrics
from ring_writer import NS, RingWriter

SCANS = 20
"""After as many scans a ring is open, however busy the machine."""


def test_ranks_that_left_a_job_when_it_shrank_have_no_series(tmp_path):
    collecting = collector(tmp_path)
    before = [RingWriter(tmp_path, f"{n}.ring", rank=n, world_size=4) for n in range(4)]
    for writer in before:
        writer.step()
    assert len(Page(collecting).labels(metrics.STEPS)) == 4
    for writer in before:
        writer.end()
    later = CREATED_NS + NS
    again = RingWriter(tmp_path, "a.ring", rank=0, world_size=2, created_unix_ns=later)
    again.step()
    page = Page(collecting)
    assert sorted(page.labels(metrics.STEPS)) == [("team/job", "0"), ("team/job", "1")]
    assert page.rank(metrics.STEPS, 0) == 2
    total = page.value(metrics.JOB_SAMPLES, "team/job")
    assert total == 5 * 8, "samples of ranks that left stay in the job's, or it would start again"
    again.end()


def test_a_restarted_process_goes_on_with_the_ranks_counters(tmp_path):
    rings = collector(tmp_path)
    first = RingWriter(tmp_path, "1.ring", attempt=0)
    first.step(10)
    Page(rings)
    first.step(2)
    first.end()
    second = RingWriter(tmp_path, "2.ring", attempt=1, created_unix_ns=CREATED_NS + NS)
    page = Page(rings)
    assert (page.rank(metrics.STEPS), page.rank(metrics.RANK_ALIVE)) == (12, 1)
    assert page.rank(metrics.LAST_STEP) is None
    second.step(3, attempt=1)
    page = Page(rings)
    assert (page.rank(metrics.STEPS), page.rank(metrics.LAST_STEP)) == (15, 2)
    assert Page(collector(tmp_path)).rank(metrics.STEPS) == 15
    second.end()


def test_the_newest_process_says_whether_the_rank_lives(tmp_path):
    old = RingWriter(tmp_path, "1.ring")
    new = RingWriter(tmp_path, "2.ring", created_unix_ns=CREATED_NS + NS)
    rings = collector(tmp_path)
    old.end()
    assert [Page(rings).rank(metrics.RANK_ALIVE) for _ in range(3)] == [1, 1, 1]
    new.end()


@pytest.mark.parametrize("beside", [{"rank": 0}, {"rank": 5, "world_size": 8}])
def test_a_process_beside_ranks_that_go_on_changes_nothing_about_them(tmp_path, beside):
    trainer = RingWriter(tmp_path, "1.ring")
    trainer.step(3)
    rings = collector(tmp_path)
    before = Page(rings).labels(metrics.RANK_ALIVE)
    engine = RingWriter(tmp_path, "2.ring", created_unix_ns=CREATED_NS + NS, pid=7, **beside)
    pages = [Page(rings) for _ in range(3)]
    assert [page.labels(metrics.RANK_ALIVE) for page in pages] == [before] * 3
    assert [page.rank(metrics.LAST_STEP) for page in pages] == [2] * 3
    assert Page(collector(tmp_path)).labels(metrics.RANK_ALIVE) == before
    trainer.end()
    alive = [Page(rings).rank(metrics.RANK_ALIVE, beside["rank"]) for _ in range(3)]
    assert alive[-1] == 1, "whatever it is, it is the newest process"
    engine.end()


def test_an_ended_jobs_series_go_after_ten_minutes(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    writer = RingWriter(tmp_path)
    writer.step(3)
    Page(rings)
    writer.end()
    page = Page(rings)
    assert (page.rank(metrics.RANK_ALIVE), page.rank(metrics.STEPS)) == (0, 3)
    clock.now += 599
    assert Page(rings).rank(metrics.STEPS) == 3
    clock.now += 1
    page = Page(rings)
    assert page.rank(metrics.STEPS) is None
    assert page.labels(metrics.STEP_LATENCY) == []


def test_a_restarted_agent_does_not_bring_back_a_job_that_ended_long_ago(tmp_path):
    clock = Clock()
    writer = RingWriter(tmp_path)
    writer.step(3)
    writer.end()
    clock.now += 3600
    assert Page(collector(tmp_path, clock)).labels(metrics.STEPS) == []


def test_an_ended_jobs_series_go_too_when_its_file_is_gone(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    writer = RingWriter(tmp_path)
    writer.step()
    Page(rings)
    writer.path.unlink()
    writer.end()
    assert Page(rings).rank(metrics.RANK_ALIVE) == 0
    clock.now += 600
    assert Page(rings).labels(metrics.STEPS) == []


def test_a_hung_job_stays_with_all_its_ranks(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    hung = RingWriter(tmp_path, "0.ring", rank=0)
    dead = RingWriter(tmp_path, "1.ring", rank=1)
    for writer in (hung, dead):
        writer.step(2)
    Page(rings)
    dead.end()
    clock.now += 7 * 86_400
    page = Page(rings)
    assert (page.rank(metrics.RANK_ALIVE, 0), page.rank(metrics.RANK_ALIVE, 1)) == (1, 0)
    hung.end()


def test_running_jobs_come_first_on_the_page_and_of_ended_ones_the_latest(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    jobs = ("a", "b", "c", "d")
    writers = {}
    for job in jobs:
        writers[job] = RingWriter(tmp_path, f"{job}.ring", job_id=job)
        writers[job].step()
        # A scan opens rings for a limited time, and may leave one to the next.
        assert any(Page(rings).rank(metrics.STEPS, job=job) for _ in range(SCANS))
    for ended in ("a", "c"):
        clock.now += 60
        Page(rings)
        writers.pop(ended).end()
    orders = {
        metric: [job for job, *_ in Page(rings).labels(metric)]
        for metric in (metrics.STEP_LATENCY, metrics.STEPS)
    }
    assert set(map(tuple, orders.values())) == {("b", "d", "c", "a")}
    for writer in writers.values():
        writer.end()


def test_records_written_just_before_the_end_are_counted(tmp_path):
    rings = collector(tmp_path)
    writer = RingWriter(tmp_path)
    writer.step()
    Page(rings)
    writer.step(4)
    writer.end()
    assert Page(rings).rank(metrics.STEPS) == 5
    assert Page(rings).rank(metrics.STEPS) == 5
