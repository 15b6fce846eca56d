"""What an agent does with the state of a newer one, as after an update is taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import following_agents
import kernel_log_nodes
import test_nccl_log_collector as nccl_nodes
from kernel_log_nodes import XID_79, Log, opened
from kernel_text import xid
from rankscope_agent.contract.metrics import job_logs
from rankscope_agent.contract.metrics import nccl_log as metrics
from rankscope_agent.sources.sealed_state import sealed, unsealed
from ring_writer import RingWriter

kernel_node = pytest.fixture(name="kernel_node")(kernel_log_nodes.node.__wrapped__)

WARNING = "gpu-00:4003:4073 [3] x.cc:1 NCCL WARN Cuda failure 2 'out of memory'\n"
STEP = "iter {0}: loss 2.5, time 100.00ms, mfu 12.34%\n"


def made_newer(value: Any) -> Any:
    """Return the same values with higher numbers wherever they state a version."""
    if isinstance(value, dict):
        return {
            name: part + 1 if name == "version" and isinstance(part, int) else made_newer(part)
            for name, part in value.items()
        }
    return [made_newer(part) for part in value] if isinstance(value, list) else value


def save_as_newer(path: Path) -> None:
    state = json.loads(unsealed(path.read_bytes()))
    newer = made_newer(state)
    assert newer != state
    path.write_bytes(sealed(json.dumps(newer, separators=(",", ":")).encode()))


def counts(node: nccl_nodes.Node) -> tuple[object, object]:
    """Return the warnings and the lines about steps on a page."""
    series = node.page()
    steps = series[job_logs.JOB_LOG_STEP_LINES, (*nccl_nodes.POD, "pytorch", "log")]
    return series[metrics.NCCL_WARNINGS, (*nccl_nodes.POD, "CUDA_FAILURE")], steps


@pytest.fixture
def logs(tmp_path):
    return nccl_nodes.Node(tmp_path)


def test_logs_are_read_anew_and_nothing_in_them_counts_twice(logs, caplog):
    logs.write(WARNING * 3 + STEP.format(1) + STEP.format(2))
    assert counts(logs) == (3, 2)
    save_as_newer(logs.root / "nccl_logs.json")
    logs.collector = logs.make()
    assert counts(logs) == (3, 2)
    assert "nccl_logs.json (version 4); reading all logs again" in caplog.text
    logs.write(WARNING + STEP.format(3))
    assert counts(logs) == (4, 3)
    logs.collector = logs.make()  # its own state has taken the place of the newer one
    assert counts(logs) == (4, 3)


def test_counts_of_logs_that_were_rotated_away_begin_anew_once_and_then_grow(logs):
    logs.write(WARNING * 3 + STEP.format(1))
    assert counts(logs) == (3, 1)
    logs.log.unlink()
    logs.write(WARNING + STEP.format(2))
    assert counts(logs) == (4, 2)
    save_as_newer(logs.root / "nccl_logs.json")
    seen = []
    for step in range(3, 6):
        logs.collector = logs.make()
        seen.append(counts(logs))
        logs.write(WARNING + STEP.format(step))
    assert seen == [(1, 1), (2, 2), (3, 3)]


def test_the_kernels_log_is_read_anew(kernel_node, caplog):
    kernel_log_nodes.page(opened(kernel_node, Log(xid(79), xid(79))))
    save_as_newer(kernel_node.state_file)
    assert kernel_log_nodes.page(opened(kernel_node, Log(xid(79), xid(79))))[XID_79] == 2
    assert "kernel_log.json (version 4, expected 3)" in caplog.text
    found = kernel_log_nodes.page(opened(kernel_node, Log(xid(79), xid(79), xid(79))))
    assert found[XID_79] == 3


def test_totals_of_steps_begin_anew_with_what_rings_hold(tmp_path, caplog):
    node = following_agents.Node(tmp_path)
    writer = RingWriter(node.folder)
    first = node.agent()
    following_agents.write_read(node, first, writer, 40)
    node.ended(first)
    save_as_newer(node.state)
    second = node.agent()
    assert following_agents.steps(node.page(second)) == following_agents.NEWEST
    assert "(version 2, this agent reads 1)" in caplog.text
    writer.step()
    assert following_agents.steps(node.page(second)) == (2, 0.2)
    writer.end()
