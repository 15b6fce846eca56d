"""`rankscope gpus` on running agents of simulated nodes."""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from rankscope_analyzers.cli import main
from running_agent import PATIENCE_SECONDS, running_agent

QUICKLY = ["--seconds", "2"]


@contextlib.contextmanager
def node(folder, name, simulation):
    """Run an agent of a simulated node, and give its address once it has read its GPUs."""
    with running_agent(folder, f"--simulate={simulation}", f"--node-name={name}") as agent:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "rankscope_gpu_sm_active_ratio" not in agent.get("/metrics"):
            assert time.monotonic() < deadline, agent.log.read_text()
            time.sleep(0.1)
        yield agent.url


@pytest.fixture(scope="module")
def hot(tmp_path_factory):
    with node(tmp_path_factory.mktemp("hot"), "hot", "h100x4:thermal@2") as url:
        yield url


@pytest.fixture(scope="module")
def low(tmp_path_factory):
    with node(tmp_path_factory.mktemp("low"), "low", "h100x2:power-cap@all") as url:
        yield url


def test_a_throttled_gpu_is_named_with_its_runbook(hot, capsys):
    assert main(["gpus", "--agent", hot, *QUICKLY]) == 0
    text = capsys.readouterr().out
    assert "thermal_slowdown: GPU 2 of node hot" in text
    assert "`rankscope runbook RankscopeGpuThermalSlowdown`" in text
    assert text.count("1.98 GHz") == 3


def test_json_says_the_same_and_who_was_not_seen(hot, capsys):
    assert main(["gpus", "--agent", hot, "--agent", "127.0.0.1:1", *QUICKLY, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["unobserved"][0].startswith("agent 127.0.0.1:1 cannot be reached")
    assert [at["kind"] for at in printed["findings"]] == ["thermal_slowdown"]
    assert printed["findings"][0]["gpus"] == ["2"]


def test_power_limits_of_nodes_are_compared_if_they_work_together(hot, low, capsys):
    agents = ["--agent", low, "--agent", hot, *QUICKLY]
    assert main(["gpus", *agents, "--one-job"]) == 0
    together = capsys.readouterr().out
    assert main(["gpus", *agents]) == 0
    apart = capsys.readouterr().out
    assert "power_limit_differs: GPUs 0, 1 of node low: power limit 400 W, others" in together
    assert "power_limit_differs" not in apart, "each node may work for a job of its own"


@pytest.mark.parametrize("arguments", [["--seconds", "0"], [*QUICKLY, "--job", "team/x"]])
def test_what_cannot_be_answered_is_said(hot, capsys, arguments):
    assert main(["gpus", "--agent", hot, *arguments]) == 1
    assert capsys.readouterr().err.startswith("rankscope gpus: ")


def test_a_gpu_that_fell_off_the_bus_stands_first(tmp_path, capsys):
    with node(tmp_path, "odd", "h100x4:xid79@2") as url:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "lost: GPU 2 of node odd" not in (text := told(url, capsys)):
            assert time.monotonic() < deadline, text
    assert text.startswith("lost: GPU 2 of node odd")
    assert "`rankscope runbook RankscopeGpuLost`" in text
    assert "No GPU deviates" not in text


def told(url, capsys):
    assert main(["gpus", "--agent", url, *QUICKLY]) == 0
    return capsys.readouterr().out
