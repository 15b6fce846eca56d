"""The demo for real: an agent, a four-rank training run, a verdict."""

from __future__ import annotations

import json
import tempfile
import time

import pytest
from rich.console import Console

from installed import skip_without
from probe_jobs.demo_jobs import forked
from rankscope_analyzers import cli
from rankscope_analyzers.demo import run as demo

skip_without("torch", "the demo trains with PyTorch")


def run_once(fault, rank, monkeypatch, capsys):
    """Run the demo; return what it prints of this one run as text and as JSON."""
    arguments, outcomes, run = ["demo", "--fault", fault, "--rank", str(rank)], [], demo.run

    def kept(*given):
        if not outcomes:
            outcomes.append(run(*given))
        return outcomes[0]

    monkeypatch.setattr(demo, "run", kept)
    assert cli.main([*arguments, "--no-color"]) == 0
    shown = capsys.readouterr().out
    assert cli.main([*arguments, "--json"]) == 0
    return shown, json.loads(capsys.readouterr().out)


FEWER_STEPS = 160
"""Steps of forked jobs, about half of what the demo makes: as many as a verdict needs."""


@pytest.fixture
def begun(request, monkeypatch):
    """Have the job begin as the demo has it, or forked from what imported torch for all tests."""
    if request.param == "forked":
        monkeypatch.setattr(demo, "STEPS", FEWER_STEPS)
        monkeypatch.setattr(demo, "process", forked(request.getfixturevalue("nursery")))


@pytest.mark.parametrize(
    ("begun", "fault", "rank", "cause", "answer"),
    [
        ("anew", "slow-compute", 3, "gpu_compute", "gpu_compute on rank 3"),
        ("forked", "slow-data", 0, "data_loader", "data_loader on rank 0"),
        ("forked", "none", 1, None, "no straggler"),
    ],
    indirect=["begun"],
)
@pytest.mark.usefixtures("begun")
def test_the_demo_names_what_was_injected_beside_the_naive_answer(
    fault, rank, cause, answer, monkeypatch, capsys
):
    shown, said = run_once(fault, rank, monkeypatch, capsys)
    injected = None if cause is None else rank
    assert said["injected"] == {"class": cause, "rank": injected}
    assert said["verdict"]["class"] == cause
    assert said["verdict"]["ranks"] == ([] if cause is None else [rank])
    assert said["naive"]["rank"] in range(4)
    # A busy machine makes everything slower, so that a smaller part of it is the fault's.
    assert (said["verdict"]["lost_fraction"] > 0.05) == (cause is not None)
    assert "Nothing is downloaded" in shown
    assert f"Rankscope says: {answer}\n" in shown
    assert f"Largest step time says: rank {said['naive']['rank']}, which is" in shown


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Give the only directory that is there for temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("begun", ["forked"], indirect=True)
@pytest.mark.usefixtures("begun")
def test_a_rank_that_never_enters_a_collective_hangs_the_job_and_the_demo_ends(capsys, temporary):
    assert cli.main(["demo", "--fault", "hang", "--rank", "1", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["injected"] == {"class": "hang", "rank": 1}
    assert outcome["verdict"]["class"] == "hang"
    assert outcome["verdict"]["summary"].startswith("no step since ")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("begun", "ending"),
    [("anew", KeyboardInterrupt), ("forked", demo.DemoError)],
    indirect=["begun"],
)
@pytest.mark.usefixtures("begun")
def test_a_demo_that_is_interrupted_or_fails_leaves_no_files(ending, temporary, monkeypatch):
    def watch(job, url, console, folder):
        while not list(temporary.rglob("rankscope-demo-*/rankscope-demo-*")) and job.poll() is None:
            time.sleep(0.05)
        assert job.poll() is None, demo.last_lines(folder / "job.log")
        if ending is demo.DemoError:
            job.kill()
        raise ending

    monkeypatch.setattr(demo, "_watch", watch)
    with pytest.raises(ending):
        demo.run("none", 0, Console(quiet=True))
    assert list(temporary.iterdir()) == []
