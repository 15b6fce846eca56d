"""`rankscope gpus` on running agents of simulated nodes."""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from rankscope_analyzers.cli import main
from rankscope_analyzers.commands.connection import Targets
from rankscope_analyzers.intake.page_history import Page
from running_agent import PATIENCE_SECONDS, running_agent

QUICKLY = ["--seconds", "2"]
BUSY = """\
rankscope_gpu_utilization_ratio{{gpu="{gpu}",uuid="GPU-{gpu}",pci="0000:{gpu}b:00"}} 1.0
rankscope_gpu_info{{gpu="{gpu}",uuid="GPU-{gpu}",pci="0000:{gpu}b:00",model="H100"}} 1.0
rankscope_gpu_allocation_info{{uuid="GPU-{gpu}",job_id="team/llm"}} 1.0
"""
RANK = 'rankscope_rank_info{job_id="team/llm",rank="4"} 1.0\n'


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


@pytest.fixture
def partly_read(monkeypatch):
    """Answer with the pages of nodes of which one shows GPUs, one only a rank, one neither."""
    gpus = "".join(BUSY.format(gpu=gpu) for gpu in range(4))
    pages = {"seen": gpus, "blind": RANK, "other": ""}
    monkeypatch.setattr(
        Targets, "pages", lambda _: ([Page(one, time.time(), pages[one]) for one in pages], [])
    )


@pytest.mark.usefixtures("partly_read")
def test_nodes_whose_gpus_are_not_read_are_named(capsys):
    assert main(["gpus", "--agent", "x", *QUICKLY]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert main(["gpus", "--agent", "x", *QUICKLY, "--json"]) == 0
    unread = "the GPUs of nodes blind, other, if they have any: their agents read none"
    assert f"Not seen: {unread}" in text
    assert json.loads(capsys.readouterr().out)["unobserved"][0].startswith(unread)


@pytest.mark.usefixtures("partly_read")
def test_a_job_may_have_deviating_gpus_on_a_node_that_shows_only_its_rank(capsys):
    assert main(["gpus", "--agent", "x", *QUICKLY, "--job", "team/llm", "--json"]) == 0
    (unread,) = json.loads(capsys.readouterr().out)["unobserved"]
    assert unread.startswith("the GPUs of job team/llm on node blind: its agent reads none")


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
