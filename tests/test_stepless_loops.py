"""Programs that compute gradients and never step an optimizer are seen, without steps."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from hanging_jobs import page, reported
from installed import skip_without
from probe_jobs.nurseries import Nursery, together
from probe_jobs.running import (
    read_rings,
)
from rankscope_analyzers import cli
from running_agent import PATIENCE_SECONDS, RunningAgent, running_agent

skip_without("torch", "these tests train with PyTorch")


UNSTEPPED = "steps of ranks 0, 1, which have the probe: no torch.optim optimizer has finished"


def test_loop_without_an_optimizer_gets_rings_without_records(
    nursery: Nursery, tmp_path: Path
) -> None:
    outcomes = nursery.run(tmp_path, "distributed.py", "stepless", ranks=2)
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2
    rings = read_rings(tmp_path)
    assert sorted((ring.rank, ring.world_size, len(ring.records)) for ring in rings) == [
        (0, 2, 0),
        (1, 2, 0),
    ]


def test_a_first_step_after_long_makes_a_ring_that_knows_its_groups(
    nursery: Nursery, tmp_path: Path
) -> None:
    outcomes = nursery.run(tmp_path, "distributed.py", "late-step", ranks=2)
    assert [ended.code for ended in outcomes] == [0, 0]
    assert [ended.output for ended in outcomes] == ["2\n", "2\n"]  # rings before the first step
    assert [len(ring.records) for ring in read_rings(tmp_path)] == [9, 9]
    assert len(list(tmp_path.glob("*.ext"))) == 2


def test_ranks_are_seen_from_the_end_of_init_process_group_on(
    nursery: Nursery, tmp_path: Path
) -> None:
    outcomes = nursery.run(tmp_path, "distributed.py", "few-backwards", ranks=2)
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2
    rings = read_rings(tmp_path)
    assert sorted((ring.rank, ring.capacity, len(ring.records)) for ring in rings) == [
        (0, 64, 0),
        (1, 64, 0),
    ]
    assert not list(tmp_path.glob("*.sock"))


def test_a_running_loop_without_an_optimizer_is_said_to_be_seen(
    nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rings = tmp_path / "rings"
    shared = {"RANKSCOPE_RING_DIR": str(rings), "RANKSCOPE_JOB_ID": "team/own"} | together(2)
    command = ["distributed.py", "stepless-for-long"]
    processes = [nursery.start(command, shared | {"RANK": rank}) for rank in ("0", "1")]
    try:
        with running_agent(tmp_path, "--collector.interval=0.5") as agent:
            metrics = await_ranks(agent, 2)
            assert cli.main(["diagnose", "--agent", agent.url, "--json"]) == 0
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        nursery.end_of(processes)
    steps = re.findall(r'^rankscope_steps_total\{.*rank="(\d)"\} (\S+)$', metrics, re.MULTILINE)
    assert sorted(steps) == [
        ("0", "0.0"),
        ("1", "0.0"),
    ]
    said = json.loads(capsys.readouterr().out)["team/own"]
    assert any(one.startswith(UNSTEPPED) for one in said["unobserved"])
    assert read_rings(rings)[0].records == ()


def test_a_loop_without_an_optimizer_that_has_ended_is_not_said_to_lack_the_probe() -> None:
    report = reported(page(alive=[0, 0], size=2))
    assert any(one.startswith(UNSTEPPED) for one in report.unobserved)


def await_ranks(agent: RunningAgent, count: int) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        page = agent.get("/metrics")
        if page.count("\nrankscope_rank_alive{") == count:
            return page
        time.sleep(0.2)
    raise AssertionError(f"no {count} ranks within {PATIENCE_SECONDS} s")
