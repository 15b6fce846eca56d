"""What the demo says in the end, whatever came out: of verdicts, and of alerts."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from job_reports import SLOW_EIGHT, frame, verdict_on
from rankscope_analyzers.demo import run as demo
from rankscope_analyzers.demo import stack

AGAIN = "Try again when this machine is less busy."


@pytest.fixture(scope="module")
def verdict():
    """The verdict on a job whose rank 5 is slow."""
    return verdict_on(frame(SLOW_EIGHT))


def shown(rank, verdict):
    text = io.StringIO()
    demo.show(demo.Console(file=text, width=80), demo.Outcome("slow-compute", rank, verdict))
    assert max(map(len, text.getvalue().splitlines())) <= 80
    return text.getvalue()


def test_a_fault_that_is_found_is_named_and_nothing_else_is_said(verdict):
    found = shown(5, verdict)
    assert "Rankscope says: gpu_compute on rank 5\n" in found
    assert AGAIN not in " ".join(found.split())


@pytest.mark.parametrize("cause", ["none", "another"])
def test_a_fault_that_is_not_found_is_hidden_by_what_else_runs(verdict, cause):
    found = shown(3, verdict if cause == "another" else replace(verdict, cause=None))
    assert AGAIN in " ".join(found.split())


def test_a_cause_that_names_no_rank_is_shown_without(verdict):
    cause = replace(verdict.cause, where=replace(verdict.cause.where, ranks=()))
    assert "Rankscope says: gpu_compute\n" in shown(None, replace(verdict, cause=cause))


def test_step_times_that_blame_nobody_are_not_compared(verdict):
    nobody = replace(verdict, naive=replace(verdict.naive, rank=None))
    assert "Largest step time" not in shown(5, nobody)


def test_an_alert_is_printed_once_with_its_summary(monkeypatch, tmp_path):
    sizes, pauses, text = iter("369"), [], io.StringIO()

    def alerts(url, timeout):
        summary = (
            f"A rank holds up job demo/slow-compute: {next(sizes)}% of every step" + " of it" * 5
        )
        labels = {"alertname": "RankscopeStraggler", "rank": "2"}
        body = json.dumps([{"labels": labels, "annotations": {"summary": summary}}])
        return nullcontext(io.StringIO(body))

    clock = SimpleNamespace(monotonic=lambda: len(pauses), sleep=pauses.append)
    monkeypatch.setattr(stack, "urlopen", alerts)
    monkeypatch.setattr(stack, "time", clock)
    console = demo.Console(file=text, width=80)
    stack._follow(SimpleNamespace(poll=lambda: None), tmp_path, "http://a", 3, console)
    assert [line.rstrip() for line in text.getvalue().splitlines()] == [
        "Alert RankscopeStraggler (rank 2)",
        "  A rank holds up job demo/slow-compute: 3% of every step of it of it of it of",
        "  it of it",
    ]
