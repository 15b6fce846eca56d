"""Logs that cannot be read for a while, and logs of pods that others have replaced."""

from __future__ import annotations

import errno
import os

import pytest

from nccl_job_text import start
from rankscope_agent.contract.metrics import job_logs
from rankscope_agent.contract.metrics import nccl_log as metrics
from rankscope_agent.sources.nccl_log.segments import Segment
from test_nccl_log_collector import NOW, POD, Node


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_log_that_cannot_be_read_once_is_read_on_and_counts_nothing_twice(node, monkeypatch):
    warning = "gpu-00:4003:4073 [3] x.cc:1 NCCL WARN Cuda failure 2 'out of memory'\n"
    node.write(warning * 3)
    node.page()
    with monkeypatch.context() as failing:
        failing.setattr(Segment, "read", unreadable)
        node.page()
    node.write(warning)
    assert node.page()[metrics.NCCL_WARNINGS, (*POD, "CUDA_FAILURE")] == 4
    node.collector = node.make()
    assert node.page()[metrics.NCCL_WARNINGS, (*POD, "CUDA_FAILURE")] == 4


def unreadable(segment: Segment) -> bytes:
    raise OSError(errno.EIO, "Input/output error")


def test_a_pod_that_is_created_again_under_its_name_has_its_own_values_alone(node):
    node.write("iter 900: loss 2.5, time 100.00ms, mfu 12.34%\n")
    node.page()
    old = node.log
    node.log = node.root / "pods" / "team_train-0_uid-0" / "main" / "0.log"
    node.log.parent.mkdir(parents=True)
    node.write("iter 1: loss 2.5, time 100.00ms, mfu 12.34%\n")
    os.utime(old, (NOW, NOW))
    series = node.page()
    assert series[job_logs.JOB_LOG_STEP, (*POD, "pytorch", "log")] == 1


def test_a_pod_that_goes_on_logging_after_another_has_its_name_does_not_take_turns_with_it(node):
    warning = "gpu-00:4003:4073 [3] x.cc:1 NCCL WARN Cuda failure 2 'out of memory'\n"
    node.write(warning * 5)
    assert node.page()[metrics.NCCL_WARNINGS, (*POD, "CUDA_FAILURE")] == 5
    deleted, replacement = node.log, node.root / "pods/team_train-0_uid-0/main/0.log"
    replacement.parent.mkdir(parents=True)
    for turn, log in enumerate((replacement, deleted, replacement, deleted)):
        node.log = log
        node.write(warning)
        other = replacement if log == deleted else deleted
        os.utime(log, (NOW + turn, NOW + turn))
        os.utime(other, (NOW - 1, NOW - 1))
        series = node.page()
        assert series[metrics.NCCL_WARNINGS, (*POD, "CUDA_FAILURE")] == 1 + turn // 2
        assert [labels[2] for metric, labels in series if metric is metrics.NCCL_NET_INFO] == [
            "uid-0"
        ]


def test_jobs_outside_of_pods_are_forgotten_with_their_logs_and_their_counts_are_kept(node):
    node.collector = node.make(node.root / "job-*.out")
    first = node.root / "job-1.out"
    warning = "gpu-00:4003:4073 [3] x.cc:1 NCCL WARN Cuda failure 2 'out of memory'\n"
    first.write_text(start(3, 16, "NET/Socket/0", network="Socket") + warning)
    assert node.page()[metrics.NCCL_SOCKET_FALLBACK, ("", "", "expected")] == 1
    node.collector = node.make(node.root / "job-*.out")
    assert node.page()[metrics.NCCL_SOCKET_FALLBACK, ("", "", "expected")] == 1
    first.unlink()
    (node.root / "job-2.out").write_text(start(3, 16, "NET/IB/0/GDRDMA"))
    series = node.page()
    assert series[metrics.NCCL_SOCKET_FALLBACK, ("", "", "other_network")] == 0
    assert series[metrics.NCCL_RANKS_EXPECTED, ("", "")] == 1
    assert series[metrics.NCCL_WARNINGS, ("", "", "CUDA_FAILURE")] == 1
