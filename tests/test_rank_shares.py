"""Places for ranks and their worker servers go round: whoever takes most gives up first."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter

from collected_page import Clock, Page, collector
from known_pods import pods_named_after_their_namespace
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.flight_recorder import collector as flight_recorder
from rankscope_agent.sources.flight_recorder.collector import FlightRecorderCollector
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.stalls import stall_source
from rankscope_agent.sources.stalls.stall_source import StallSource
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training.files import MAX_RINGS, MAX_RINGS_PER_HOLDER
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.shares import forget_ranks
from rankscope_agent.sources.training.totals import JobTotals
from ring_volumes import rings_of_three_pods, volume
from ring_writer import RingWriter
from served_agents import RANK

NOW = 1_700_000_000.0


def test_made_up_ranks_cost_their_own_job_and_no_job_with_an_open_ring(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "MAX_RANKS", 4)
    clock = Clock()
    victim = RingWriter(tmp_path, "victim.ring", job_id="victim", rank=7)
    victim.step(5)
    ended = RingWriter(tmp_path, "ended.ring", job_id="ended")
    ended.step()
    rings = collector(tmp_path, clock)
    Page(rings)
    ended.end()
    liar = RingWriter(tmp_path, "liar.ring", job_id="liar", rank=0)
    liar.step()
    for rank in range(1, 8):
        clock.now += 1
        made_up = RingWriter(tmp_path, f"{rank}.ring", job_id="liar", rank=rank)
        made_up.step()
        made_up.end()
        page = Page(rings)
    found = set(page.labels(metrics.STEPS))
    assert found >= {("victim", "7"), ("ended", "0"), ("liar", "0")}
    assert len(found) == 4
    assert page.rank(metrics.STEPS, 7, "victim") == 5
    for writer in (victim, liar):
        writer.end()


def test_a_job_that_ended_keeps_its_ranks_while_pods_hold_all_rings_that_are_read(tmp_path):
    clock = Clock()
    ended = [RingWriter(tmp_path, f"{n}.ring", rank=n, job_id="ended") for n in range(8)]
    for writer in ended:
        writer.step()
    rings = collector(tmp_path, clock, pods=pods_named_after_their_namespace())
    Page(rings)
    for writer in ended:
        writer.end()
        writer.path.unlink()
    holders = [volume(tmp_path, f"greedy-{n}") for n in range(MAX_RINGS // MAX_RINGS_PER_HOLDER)]
    others = [
        RingWriter(holder, f"{n}.ring", rank=n, job_id=holder.parents[2].name, capacity=1)
        for holder in holders
        for n in range(MAX_RINGS_PER_HOLDER)
    ]
    for _ in "places of the ended ones", "the last of the others":
        clock.now += 10
        page = Page(rings)
    assert page.value(metrics.RINGS) == MAX_RINGS
    assert {("ended", str(n)) for n in range(8)} <= set(page.labels(metrics.STEPS))
    for writer in others:
        writer.end()


def known_ranks(**jobs):
    """Return what is known of jobs: of each rank when its process began, in nanoseconds."""
    known = {}
    for name, began in jobs.items():
        job = known[name.replace("_", "/")] = JobTotals()
        for number, created in enumerate(began):
            job.rank(dataclasses.replace(RANK, rank=number), created)
    return known


def left(jobs):
    return {name: sorted(job.ranks) for name, job in jobs.items()}


def test_the_namespace_that_has_most_ranks_is_charged_however_many_jobs_they_are_of():
    jobs = known_ranks(greedy_a=[1, 2], greedy_b=[1, 2], team_llm=[1, 2, 3])
    forget_ranks(jobs, set(), 1)
    assert left(jobs)["team/llm"] == [0, 1, 2]


def test_of_one_job_the_rank_that_ended_first_is_forgotten_first():
    jobs = known_ranks(team_llm=[5, 1, 9])
    forget_ranks(jobs, set(), 2)
    assert left(jobs) == {"team/llm": [2]}


def test_worker_servers_of_one_namespace_leave_others_theirs(tmp_path, monkeypatch):
    monkeypatch.setattr(flight_recorder, "MAX_SOCKETS", 4)
    writers = rings_of_three_pods(tmp_path, 4)
    for writer in writers:
        writer.step(flags=0)
        writer.path.with_suffix(".sock").touch()
    names = pods_named_after_their_namespace()
    collector_of_calls = FlightRecorderCollector(
        tmp_path, tmp_path / "kubelet", FlightWindows(), names, Clock()
    )
    collector_of_calls._find(NOW)
    found = Counter(socket.holder[0] for socket in collector_of_calls._sockets)
    assert found == {"greedy": 2, "team": 2}
    for writer in writers:
        writer.end()


def test_ranks_that_stand_still_share_out_who_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(stall_source, "MAX_RANKS", 8)
    writers = rings_of_three_pods(tmp_path, 6)
    for writer in writers:
        writer.step()
    names = pods_named_after_their_namespace()
    rings = RingStepSource(tmp_path, tmp_path / "kubelet", "gpu-01", time.time, names)
    standing = StallSource(rings, tmp_path).stalls(None)
    asked, others = ([one for one in standing if one.asked is said] for said in (True, False))
    assert Counter(one.job_id for one in asked) == {"greedy/0": 2, "greedy/1": 2, "team/late": 4}
    assert len(others) == 10
    assert {one.recorder for one in others} == {stall_source.NO_PLACE.recorder}
    for writer in writers:
        writer.end()
