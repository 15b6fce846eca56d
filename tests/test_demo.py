"""The demo for real: an agent, a four-rank training run, a verdict."""

from __future__ import annotations

import json

import pytest

from installed import skip_without
from rankscope_analyzers import cli

skip_without("torch", "the demo trains with PyTorch")


@pytest.mark.parametrize(
    ("fault", "rank", "cause"),
    [("slow-compute", 3, "gpu_compute"), ("slow-data", 0, "data_loader"), ("none", 1, None)],
)
def test_the_demo_names_what_was_injected(fault, rank, cause, capsys):
    assert cli.main(["demo", "--fault", fault, "--rank", str(rank), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    injected = None if cause is None else rank
    assert said["injected"] == {"class": cause, "rank": injected}
    assert said["verdict"]["class"] == cause
    assert said["verdict"]["ranks"] == ([] if cause is None else [rank])
    assert said["naive"]["rank"] in range(4)
    # A busy machine makes everything slower, so that a smaller part of it is the fault's.
    assert (said["verdict"]["lost_fraction"] > 0.05) == (cause is not None)


def test_the_text_of_the_demo_compares_verdict_and_naive_answer(capsys):
    assert cli.main(["demo", "--fault", "slow-data", "--rank", "2", "--no-color"]) == 0
    shown = capsys.readouterr().out
    assert "Nothing is downloaded" in shown
    assert "Rankscope says: data_loader on rank 2" in shown
    assert "Largest step time says: rank" in shown


def test_a_rank_that_never_enters_a_collective_hangs_the_job_and_the_demo_ends(capsys):
    assert cli.main(["demo", "--fault", "hang", "--rank", "1", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["injected"] == {"class": "hang", "rank": 1}
    assert outcome["verdict"]["class"] == "hang"
    assert outcome["verdict"]["summary"].startswith("no step since ")
