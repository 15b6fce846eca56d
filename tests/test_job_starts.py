"""How long jobs' processes take to start: of real ranks, and of rings of all kinds."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collected_page import CREATED, CREATED_NS, Clock, Page, collector
from nccl_job_text import comm, facts_of, info
from pod_json import pod, uid
from probe_jobs.nurseries import Nursery
from probe_jobs.starting_times import FIRST_STEP_SECONDS, LATE_SECONDS
from rankscope_agent.contract.metrics import job_starts, training
from rankscope_agent.sources.nccl_log.collector import NcclLogCollector
from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.nccl_log.init_time import init_seconds
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.records import parse_pod
from rankscope_agent.sources.training.collector import TrainingCollector
from ring_writer import NS
from started_ranks import DONE, FAILED, JOIN, Rank, ticks_of


def phases(page: Page, job: str = "team/job") -> dict[str, float]:
    metric = job_starts.JOB_STARTUP
    found = {labels: page.value(metric, *labels) for labels in page.labels(metric)}
    return {phase: float(str(value)) for (name, phase), value in found.items() if name == job}


def test_a_real_job_tells_how_long_each_phase_of_its_start_took(
    nursery: Nursery, tmp_path: Path
) -> None:
    rings = tmp_path / "rings"
    outcomes = nursery.run(rings, "starting.py", ranks=2)
    told = [json.loads(one.output) for one in outcomes]
    read = TrainingCollector(rings, tmp_path / "kubelet", "gpu-01", time.time)
    page = Page(read)
    (job,) = {labels[0] for labels in page.labels(training.STEPS)}
    found = phases(page, job)
    assert found.keys() == {"process", "rendezvous", "first_step"}
    assert found["process"] >= LATE_SECONDS, "the late rank was the slowest of this phase"
    waited = max(one["joined"] - one["joining"] for one in told)
    assert LATE_SECONDS / 2 < found["rendezvous"] <= waited
    stepped = max(one["first_step"] - one["joined"] for one in told)
    assert FIRST_STEP_SECONDS <= found["first_step"] <= stepped + 0.05
    (began,) = [page.value(job_starts.JOB_PROCESSES_STARTED, job)]
    assert isinstance(began, float)
    late = told[1]["joining"] - LATE_SECONDS
    assert late - 60 < began < late


@pytest.mark.usefixtures("standing_uptime")
def test_each_phase_is_that_of_the_slowest_rank(tmp_path):
    first, second = Rank(tmp_path, 0), Rank(tmp_path, 1)
    first.joins(5)
    second.joins(8)
    first.steps(30)
    second.steps(25)
    page = Page(collector(tmp_path))
    assert phases(page) == pytest.approx(
        {"process": 10, "rendezvous": 8, "first_step": 35}, abs=0.1
    )
    started = page.value(job_starts.JOB_PROCESSES_STARTED, "team/job")
    assert started == pytest.approx(CREATED - 20, abs=0.1)


def test_a_phase_that_lasts_for_one_rank_is_left_out(tmp_path):
    first, second = Rank(tmp_path, 0), Rank(tmp_path, 1)
    first.joins(5)
    second.joins(8)
    first.steps(30)
    read = collector(tmp_path)
    assert phases(Page(read)).keys() == {"process", "rendezvous"}
    second.steps(25)
    assert phases(Page(read)).keys() == {"process", "rendezvous", "first_step"}


def test_a_failed_rendezvous_that_is_tried_again_lasts_until_it_is_done(tmp_path):
    rank = Rank(tmp_path)
    rank.joins(3, FAILED)
    read = collector(tmp_path)
    assert phases(Page(read)).keys() == {"process"}
    rank.joins(7, DONE, seq=2)
    assert phases(Page(read))["rendezvous"] == pytest.approx(7)


def test_joining_again_while_it_trains_is_no_start_and_excuses_no_hang(tmp_path):
    rank = Rank(tmp_path)
    rank.joins(5)
    rank.steps(30)
    read = collector(tmp_path)
    before = phases(Page(read))
    rank.spans.write(2, JOIN, start_ns=CREATED_NS + 40 * NS)
    page = Page(read)
    assert phases(page) == before
    assert page.labels(training.SPAN_BEGAN) == []
    rank.spans.write(2, JOIN, start_ns=CREATED_NS + 40 * NS, duration_ns=NS, outcome=DONE)
    assert phases(Page(read)) == before


@pytest.mark.usefixtures("standing_uptime")
def test_the_newest_attempt_counts(tmp_path):
    old = Rank(tmp_path)
    old.joins(5)
    old.steps(30)
    read = collector(tmp_path)
    Page(read)
    old.ring.end()
    new = Rank(tmp_path, at=100, attempt=1)
    assert phases(Page(read)) == {}
    new.joins(2)
    new.steps(3)
    assert phases(Page(read)) == pytest.approx(
        {"process": 10, "rendezvous": 2, "first_step": 11}, abs=0.1
    )


@pytest.mark.usefixtures("standing_uptime")
def test_a_rank_that_has_ended_here_counts_no_more_once_another_is_started_again(tmp_path):
    old = [Rank(tmp_path, 0), Rank(tmp_path, 1)]
    for rank in old:
        rank.joins(5)
        rank.steps(300)
    read = collector(tmp_path)
    assert phases(Page(read))["first_step"] == pytest.approx(305, abs=0.1)
    for rank in old:
        rank.ring.end()
    assert phases(Page(read))["first_step"] == pytest.approx(305, abs=0.1)
    new = Rank(tmp_path, 0, at=400, attempt=1)
    new.joins(2)
    new.steps(3)
    assert phases(Page(read)) == pytest.approx(
        {"process": 10, "rendezvous": 2, "first_step": 11}, abs=0.1
    )


def test_a_later_ring_of_the_same_process_keeps_what_the_first_said(tmp_path):
    rank = Rank(tmp_path)
    rank.joins(5)
    rank.steps(30)
    read = collector(tmp_path)
    before = phases(Page(read))
    assert len(before) == 3
    rank.ring.end()
    rank = Rank(tmp_path, at=60, process_start_ticks=rank.ticks)
    rank.ring.step(step=40, start_unix_ns=CREATED_NS + 60 * NS)
    assert phases(Page(read)) == before


@pytest.mark.parametrize("ticks", [0, ticks_of(CREATED + 3600)], ids=["at boot", "an hour late"])
def test_a_start_that_cannot_be_is_not_believed(tmp_path, ticks):
    """A process in a virtual machine counts from that machine's boot, a hostile one as it likes."""
    rank = Rank(tmp_path, process_start_ticks=ticks)
    rank.joins(5)
    rank.steps(30)
    page = Page(collector(tmp_path))
    assert phases(page).keys() == {"rendezvous", "first_step"}
    assert page.labels(job_starts.JOB_PROCESSES_STARTED) == []


def in_pod(tmp_path: Path, created: float, started: float) -> tuple[Path, TrainingCollector]:
    """Return where the rings of a pod are, and what reads them."""
    volume = tmp_path / f"kubelet/pods/{uid(1)}/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    made = pod("w0", owner=("kubeflow.org/v1", "PyTorchJob", "llm"))
    made["metadata"]["creationTimestamp"] = utc(created)
    made["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": utc(started)}}
    pods = PodDirectory()
    pods.replace([parse_pod(made)], 1.0)
    return volume, TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", Clock(), pods)


def utc(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.usefixtures("standing_uptime")
@pytest.mark.parametrize(("attempt", "launch"), [(0, 30), (1, None)])
def test_what_a_container_does_before_its_ranks_is_a_phase_of_the_first_attempt(
    tmp_path, attempt, launch
):
    volume, read = in_pod(tmp_path, CREATED - 60, CREATED - 50)
    rank = Rank(volume, pod_uid=uid(1), attempt=attempt)
    rank.joins(5)
    page = Page(read)
    assert phases(page, "ml/llm").get("launch") == pytest.approx(launch, abs=0.1)


def test_no_process_starts_before_its_pod(tmp_path):
    volume, read = in_pod(tmp_path, CREATED - 10, CREATED - 9)
    rank = Rank(volume, pod_uid=uid(1))
    rank.joins(5)
    assert phases(Page(read), "ml/llm") == {"rendezvous": 5}


def test_a_probe_that_marks_no_rendezvous_says_nothing_of_it(tmp_path):
    Rank(tmp_path).steps(30)
    assert phases(Page(collector(tmp_path))) == {}


@pytest.mark.usefixtures("standing_uptime")
def test_a_process_alone_waits_for_nobody(tmp_path):
    Rank(tmp_path, world_size=1, local_world_size=1).steps(30)
    assert phases(Page(collector(tmp_path))) == pytest.approx({"first_step": 50}, abs=0.1)


def made(pid: int, rank: int, nranks: int, total: float | None, comm_id: str) -> str:
    """Return what a process logs of making a communicator, with its time if NCCL is new enough."""
    texts = [comm(rank, nranks, "START", comm_id)]
    if total is not None:
        texts.append(
            f"Init timings - ncclCommInitRankConfig: rank {rank} nranks {nranks} total {total:.2f}"
            " (kernels 0.20, alloc 0.10, bootstrap 0.30, allgathers 0.01, topo 0.05, graphs 0.01,"
            " connections 0.50, rest 0.01)"
        )
    texts.append(comm(rank, nranks, "COMPLETE", comm_id))
    return "".join(info(rank, text, pid=pid) for text in texts)


def test_nccls_own_times_add_up_by_process_and_the_newest_of_a_rank_counts():
    first = [made(11, 0, 2, 9.0, "0x1"), made(12, 1, 2, 8.0, "0x1")]
    again = [made(21, 0, 2, 1.5, "0x2"), made(22, 1, 2, 2.0, "0x2"), made(21, 0, 1, 0.75, "0x3")]
    assert init_seconds(facts_of("".join(first))) == 9.0
    assert init_seconds(facts_of("".join(first + again))) == 2.25


def test_older_nccl_does_not_say_how_long_it_took():
    assert init_seconds(facts_of(made(11, 0, 2, None, "0x1"))) is None


def test_nccls_time_of_a_jobs_pods_on_the_node_is_that_of_the_slowest(tmp_path):
    pods, texts = [], {1: made(11, 0, 2, 1.0, "0x1"), 2: made(12, 1, 2, 3.0, "0x1")}
    for number, text in texts.items():
        one = pod(f"w{number}", number=number, owner=("kubeflow.org/v1", "PyTorchJob", "llm"))
        pods.append(parse_pod(one))
        log = tmp_path / "pods" / f"ml_w{number}_{uid(number)}" / "main" / "0.log"
        log.parent.mkdir(parents=True)
        lines = text.splitlines()
        log.write_text("".join(f"2026-11-21T02:14:00.1Z stdout F {line}\n" for line in lines))
    directory = PodDirectory()
    directory.replace(pods, 1.0)
    follower = NcclFollower(tmp_path / "pods", (), lambda: 0.0, 1.0, lambda: 0.0)
    state, clock = tmp_path / "state.json", Clock()
    read = NcclLogCollector(follower, tmp_path / "sys", state, clock, directory)
    found = {(one.metric, one.labels): one.value for one in read.collect()}
    assert found[job_starts.JOB_STARTUP, ("ml/llm", "nccl_init")] == 3.0
