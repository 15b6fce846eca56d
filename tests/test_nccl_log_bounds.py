"""The last that is still taken and the first that is not, of each limit on NCCL's logs."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from nccl_job_text import comm, edge, info, start
from rankscope_agent.contract.metrics import nccl_log
from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.contract.nccl.watchdog import WatchdogFacts
from rankscope_agent.sources.nccl_log import collector as log_collector
from rankscope_agent.sources.nccl_log import memory, pod, series
from rankscope_agent.sources.nccl_log.collector import NcclLogCollector
from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.nccl_log.pod import PodLogs
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.log_directories import PodIdentity
from standing_clock import Clock
from test_nccl_log_collector import Node as LogNode


def test_logs_are_looked_for_every_five_seconds_and_counts_are_saved_every_thirty(tmp_path):
    made = LogNode(tmp_path)
    clock = Clock()
    follower_made = NcclFollower(
        tmp_path / "pods", (), made.cpu, budget_seconds=1.0, timer=lambda: 0.0
    )
    state = tmp_path / "nccl_logs.json"
    asking = NcclLogCollector(follower_made, tmp_path / "sys", state, clock, PodDirectory())
    made.write(start(7, 16, "NET/Socket/0", network="Socket"))

    def logs():
        return next(s.value for s in asking.collect() if s.metric is nccl_log.NCCL_LOGS)

    assert logs() == 1
    first = state.read_bytes()
    other = tmp_path / "pods" / "team_train-1_uid-2" / "main"
    other.mkdir(parents=True)
    (other / "0.log").write_text("x\n")
    clock.now += 4.9
    assert logs() == 1
    clock.now += 0.2
    assert logs() == 2
    clock.now += 24.8
    logs()
    assert state.read_bytes() == first
    clock.now += 0.2
    logs()
    assert state.read_bytes() != first


def test_64_mebibytes_are_read_of_saved_counts(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        log_collector, "unsealed_or_older", lambda text: asked.append(len(text)) or b"{}"
    )
    (tmp_path / "nccl_logs.json").touch()
    os.truncate(tmp_path / "nccl_logs.json", (64 << 20) + 9)
    LogNode(tmp_path)
    assert asked == [(64 << 20) + 1]


def test_64_pods_are_remembered_with_what_nccl_says_and_256_with_failures(tmp_path):
    follower_made = NcclFollower(tmp_path, (), lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0)
    for index in range(65):
        job = follower_made._job(PodIdentity(f"n{index}", "p", "u"))
        job.facts.warnings["x"] = None  # it has spoken
        follower_made._limit(job)
        assert job.stopped is (index == 64)
    for index in range(300):
        follower_made._job(PodIdentity(f"silent{index}", "p", "u"))
    assert len(follower_made._jobs) == 256


def test_pods_together_take_16_mebibytes(tmp_path):
    made = NcclFollower(tmp_path, (), lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0)
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    made._jobs[one.owner] = one
    one.weight = 16 << 20
    made._bound()
    assert not one.full
    one.weight += 1
    made._bound()
    assert one.full


@pytest.mark.parametrize(("weight", "full"), [(4 << 20, False), ((4 << 20) + 1, True)])
def test_one_pod_takes_four_mebibytes(monkeypatch, weight, full):
    monkeypatch.setattr(pod, "estimated_bytes", lambda facts, threads: weight)
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    one.sum_up()
    assert one.full is full


@pytest.mark.parametrize(("length", "cut"), [(65535, 0), (65536, 1)])
def test_64_kibibytes_are_kept_of_a_line_without_an_end(tmp_path, length, cut):
    made = LogNode(tmp_path)
    made.log.write_text("x" * length)
    for _ in range(3):
        made.page()
    (followed,) = made.collector._follower._followed.values()
    assert followed.framing.oversized == cut


def facts(**given):
    dog = WatchdogFacts()
    empty = {
        "all_members": lambda: (),
        "members": (),
        "past_members": (),
        "loose_edges": {},
        "watchdog": dog,
        "processes": (),
        "settings": 0,
        "warnings": (),
        "ib_errors": (),
        "comm_ranks": (),
        "tagged_ranks": (),
    }
    return SimpleNamespace(**(empty | given))


EDGES = SimpleNamespace(pairs={"NET/IB": (1, 2)})
DOG = WatchdogFacts(
    timeouts=(1,),
    states=(1, 2),
    culprits=(1,),
    ranks=(1, 2, 3),
    signalled_by=(1, 2),
    repeated=(1, 2, 3),
    of_groups=(1, 2),
    ungrouped=(1,),
)


@pytest.mark.parametrize(
    ("found", "threads", "expected"),
    [
        (facts(), 10, 12_000),
        (facts(processes=(1,) * 10), 0, 12_000),
        (facts(settings=10), 0, 4_000),
        (facts(all_members=lambda: [SimpleNamespace(edges=EDGES)]), 0, 3 * 120),
        (facts(members=(1, 2), past_members=(3,)), 0, 3 * 1_800),
        (facts(loose_edges={0: [EDGES, EDGES]}), 0, 6 * 120),
        (facts(watchdog=DOG), 0, 4 * 400 + 5 * 64 + 6 * 300),
        (facts(warnings=(1, 2), ib_errors=(1,)), 0, 3_000),
        (facts(comm_ranks=(1, 2), tagged_ranks=(3,)), 0, 3 * 64),
    ],
)
def test_what_facts_weigh(found, threads, expected):
    assert memory.estimated_bytes(found, threads) == expected


def test_a_verdict_stands_for_five_seconds(monkeypatch):
    judged = []
    monkeypatch.setattr(pod, "judge", lambda facts: judged.append(1) or len(judged))
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    for now, verdict in ((100.0, 1), (104.9, 1), (105.1, 2)):
        one._grew = True
        assert one.verdict(now) == verdict


@pytest.mark.parametrize(
    ("version", "known"), [(3, False), (4, True), (8, True), (12, True), (13, False)]
)
def test_versions_4_to_12_of_the_external_plugin_are_known(version, known):
    name = f"IBext_v{version}"
    assert series._bounded(name, series.NETWORKS) == (name if known else "other")


def fed(lines_):
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    one.feed("".join(lines_).encode(), 1.0, fresh=True)
    one.sum_up()
    return one


def test_4096_ranks_of_a_pod_are_remembered():
    one = fed(info(rank, comm(rank, 4200, "START")) for rank in range(4200))
    assert len(one.facts.members) == 4096


@pytest.mark.parametrize(("known", "kept"), [(4095, True), (4096, False)])
def test_4096_ranks_with_timeouts_of_a_pod_are_remembered(known, kept):
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    one.facts.watchdog.ranks |= set(range(1, known + 1))
    one.facts.watchdog.read(b"[rank5000]: nothing else")
    assert (5000 in one.facts.watchdog.ranks) is kept


@pytest.mark.parametrize(("edges", "left"), [(3999, 4000), (4000, 0)])
def test_4000_connections_of_a_pod_wait_to_be_summed_up(edges, left):
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    one._parser._new_edges = edges
    one.feed(info(0, edge(0, 1, "P2P/IPC")).encode(), 1.0, fresh=True)
    assert one._parser._new_edges == left


def test_4096_threads_and_8192_settings_of_a_pod_are_remembered():
    said = "gpu-00:{0}:{0} [0] NCCL INFO Using network IB\n"
    one = fed(said.format(number) for number in range(1, 4200))
    assert one._parser.threads == 4096 + 1, "and one that stands for all others"
    sets = "gpu-00:{0}:{0} [0] NCCL INFO NCCL_X{1} set by environment to 1\n"
    one = fed(sets.format(1 + number // 60, number % 60) for number in range(8400))
    assert one.facts.settings == 8192
