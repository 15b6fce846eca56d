"""Pods that have ended, whose logs Kubernetes keeps, cost no pod that runs its series."""

from __future__ import annotations

from pathlib import Path

from pod_json import uid
from pod_states import BEGIN, worker
from rankscope_agent.collecting.series_budget import series_of, within_budget
from rankscope_agent.contract.metrics import job_logs, nccl_log
from rankscope_agent.contract.model import Scrape
from rankscope_agent.sources.nccl_log.collector import NcclLogCollector
from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.records import parse_pod

WARNING = "node:1:2 [0] init.cc:1 NCCL WARN Cuda failure 2 'out of memory'"
STEP = "{'loss': 0.25, 'learning_rate': 0.001, 'epoch': 1.0}"


def pods_that_log(root: Path, count: int) -> PodDirectory:
    """Return pods of one job that wrote logs, of which only the last one runs."""
    directory = PodDirectory()
    for index in range(count):
        phase = "Running" if index == count - 1 else "Succeeded"
        directory.put(parse_pod(worker(index, number=index + 1, phase=phase)), BEGIN)
        log = root / f"ml_llm-worker-{index}_{uid(index + 1)}" / "main" / "0.log"
        log.parent.mkdir(parents=True)
        log.write_text(
            "".join(f"2026-11-20T10:00:00.5Z stdout F {line}\n" for line in (WARNING, STEP))
        )
    return directory


def test_a_pod_that_runs_is_on_the_page_before_pods_that_ended(tmp_path):
    directory = pods_that_log(tmp_path / "pods", 70)
    pods = tmp_path / "pods"
    follower = NcclFollower(
        pods, (), lambda: 0.0, 1.0, timer=lambda: 0.0, ended=directory.has_ended
    )
    state = tmp_path / "state.json"
    made = NcclLogCollector(follower, tmp_path / "sys", state, lambda: BEGIN + 60.0, directory)
    samples = tuple(made.collect())
    of_one = [s for s in samples if "llm-worker-69" in s.labels]
    assert {nccl_log.NCCL_WARNINGS, job_logs.JOB_LOG_STEP_LINES} <= {s.metric for s in of_one}
    room = sum(series_of(s) for s in samples if len(s.labels) < 2 or s in of_one) + 200
    page = within_budget([Scrape("nccl_log", True, 0.0, samples, "", None)], room).samples
    assert set(of_one) <= set(page)
    assert sum(series_of(s) for s in samples) > room
