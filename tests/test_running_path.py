"""What a user is told of running jobs: rings, a real agent, `rankscope diagnose --agent --json`."""

from __future__ import annotations

import pytest
from benchmarks.straggler_suite import final, running

from suite_jobs import fault, made

FLAT = {"world": 16, "tensor": 1, "pipeline": 1, "steps": 260}
STAGES = {"world": 16, "tensor": 2, "pipeline": 2, "steps": 260}
NODE = tuple(range(8, 16))
"""The ranks of the second node, on which slot 13 is."""

JOBS = {
    "slow-gpu": (made(fault("gpu_compute", "gpu", 1.5, last=260), name="slow-gpu", **FLAT),
                 "gpu_compute", (13,)),
    "slow-gpu-by-the-clock": (
        made(fault("gpu_compute", "gpu", 1.5, last=260), name="slow-gpu-by-the-clock",
             timing="wall", **FLAT),
        "gpu_compute", (13,)),
    "slow-gpu-past": (
        made(fault("gpu_compute", "gpu", 1.6, last=160), name="slow-gpu-past", **FLAT),
        "gpu_compute", (13,)),
    "slow-gpu-in-a-grid": (
        made(fault("gpu_compute", "gpu", 1.5, last=260), name="slow-gpu-in-a-grid", **STAGES),
        "gpu_compute", (13,)),
    "slow-input": (made(fault("data_loader", "rank", 0.4, last=260), name="slow-input", **FLAT),
                   "data_loader", (13,)),
    "slow-link": (made(fault("network_link", "rank", 4.0, last=260), name="slow-link", **FLAT),
                  "network_link", (13, 14)),
    "slow-writer": (
        made(fault("storage_checkpoint", "writer", 8.0, last=260), name="slow-writer", **FLAT),
        "storage_checkpoint", NODE),
    "slow-writers": (
        made(fault("storage_checkpoint", "all_writers", 8.0, last=260), name="slow-writers",
             **FLAT),
        "storage_checkpoint", ()),
    "slow-storage": (
        made(fault("storage_checkpoint", "shared_input", 0.4, last=260), name="slow-storage",
             **FLAT),
        "storage_checkpoint", ()),
    "slow-everything": (
        made(fault("global_slowdown", "compute", 1.4, last=260), name="slow-everything", **FLAT),
        "global_slowdown", ()),
    "slow-fabric": (
        made(fault("global_slowdown", "fabric", 4.0, last=260), name="slow-fabric", **FLAT),
        "global_slowdown", ()),
    "unequal-sequences": (
        made(fault("partition_imbalance", "sequence_length", 0.2, last=260),
             name="unequal-sequences", **FLAT),
        "partition_imbalance", ()),
    "noisy-host": (
        made(fault("host_transient", "noisy_host", 0.6, last=260, duty=0.25), name="noisy-host",
             **FLAT),
        "host_transient", NODE),
    "healthy": (made(name="healthy", **FLAT), None, ()),
    "healthy-by-the-clock": (
        made(name="healthy-by-the-clock", timing="wall", evaluation_period=50,
             evaluation_seconds=8.0, **FLAT),
        None, ()),
    "restarted": (
        made(fault("gpu_compute", "gpu", 1.5, first=100, last=260), name="restarted", restart=150,
             **FLAT),
        "gpu_compute", (13,)),
}  # fmt: skip
"""A job of each kind with what is to be said of it."""


@pytest.fixture(scope="module")
def told():
    """Returns what is said of every job."""
    jobs = [running.running(simulated) for simulated, _, _ in JOBS.values()]
    return {answer.job.name: answer for answer in running.answers(jobs, "1h")}


@pytest.mark.parametrize("name", JOBS)
def test_a_user_is_told_what_is_wrong_and_with_whom(told, name):
    simulated, kind, ranks = JOBS[name]
    said = told[name].reported
    assert said is not None, told[name].problem
    verdict = said["verdict"]
    assert (verdict["class"], sorted(verdict["ranks"])) == (kind, sorted(ranks)), verdict["summary"]
    if kind is not None:
        (meant,) = simulated.labels["faults"]
        assert verdict["lost_fraction"] == pytest.approx(meant["lost_fraction"], abs=0.1)
        one = final.verdict(verdict, simulated.labels, told[name].job.shift)
        assert meant["start_unix"] - 60 <= one["detected_at_unix"] <= meant["end_unix"]


def test_a_fault_that_is_over_is_told_as_past(told):
    assert told["slow-gpu-past"].reported["verdict"]["until_unix_seconds"] is not None
    assert told["slow-gpu"].reported["verdict"]["until_unix_seconds"] is None


def test_the_last_minutes_of_a_slow_job_are_compared_with_its_own_start():
    slow = made(fault("global_slowdown", "compute", 1.4, last=260), name="slow-for-long", **FLAT)
    (answer,) = running.answers([running.running(slow)], "3m")
    verdict = answer.reported["verdict"]
    assert (verdict["class"], verdict["until_unix_seconds"]) == ("global_slowdown", None)
