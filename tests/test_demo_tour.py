"""The tour of the demo: its jobs are those of test_demo.py, so that only its GPUs are real here."""

from __future__ import annotations

import re

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.commands import demo_tour
from rankscope_analyzers.demo import hang
from rankscope_analyzers.demo import run as demo


@pytest.fixture
def jobs(monkeypatch):
    """What would be run, in order."""
    run: list[tuple[str, int]] = []
    monkeypatch.setattr(demo, "require", lambda rank: None)
    monkeypatch.setattr(demo, "run", lambda fault, rank, console: run.append((fault, rank)))
    monkeypatch.setattr(hang, "run", lambda rank, console: run.append(("hang", rank)))
    for module in (demo, hang):
        monkeypatch.setattr(module, "show", lambda console, *rest: console.print("shown"))
    return run


def test_the_tour_runs_each_fault_once_and_ends_with_the_hot_gpu(jobs, capsys):
    assert cli.main(["demo", "--tour", "--rank", "1", "--no-color"]) == 0
    assert [fault for fault, _ in jobs] == ["none", "slow-compute", "slow-data", "hang"]
    assert {rank for _, rank in jobs} == {1}
    shown = capsys.readouterr().out
    assert re.findall(r"^(\d) of 5\.", shown, re.MULTILINE) == list("12345")
    assert shown.count("shown\n") == len(jobs)
    _, _, gpus = shown.partition(demo_tour.STOPS[-1].sentence.split(".")[0])
    assert re.search(r"thermal_slowdown: GPU 5 of node", gpus)
    assert max(map(len, shown.splitlines())) <= 80


def test_a_tour_is_text_alone(jobs, capsys):
    assert cli.main(["demo", "--tour", "--json"]) == 1
    assert "--tour" in capsys.readouterr().err
    assert jobs == []


def test_rankscope_alone_says_what_to_try_first(capsys):
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    commands = re.findall(r"^  rankscope (\S+)", shown, re.MULTILINE)
    assert commands[0] == "demo"
    assert set(commands) <= set(cli.COMMANDS)
    assert "--help" in shown
