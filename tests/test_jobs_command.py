"""`rankscope jobs`: what its table says of jobs that train, are slow, wait or fail."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import tomllib

from answering_agents import Agent
from hanging_jobs import NOW as HANG_NOW
from hanging_jobs import training_page
from rankscope_analyzers import cli
from rankscope_analyzers.commands import jobs
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.reports import job_table
from rankscope_analyzers.stragglers.diagnosis import TimingResults

NOW = 1_795_170_000.0
LAST_FAILURE = "rankscope_job_last_failure_timestamp_seconds"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("rankscope_analyzers.intake.agent_pages.POLL_SECONDS", 0.05)


def row(page: str) -> job_table.JobRow:
    read = [Page("n1", NOW + at, page) for at in (-60, 0)]
    evidence = job_reports.JobEvidence(from_pages(read, job_reports.READS))
    (found,) = job_table.rows(job_reports.reports(TimingResults(), evidence, NOW))
    return found


@pytest.mark.parametrize(
    ("page", "state", "kind"),
    [
        (
            'rankscope_job_waiting_pods{job_id="t/a",reason="CrashLoopBackOff"} 1\n'
            'rankscope_job_pods{job_id="t/a",phase="Running"} 1\n',
            "crash loop",
            "crash_loop",
        ),
        ('rankscope_job_pods{job_id="t/a",phase="Pending"} 1\n', "waiting", "pod_pending"),
        ('rankscope_job_pods{job_id="t/a",phase="Running"} 1\n', "unknown", ""),
        (
            f'{LAST_FAILURE}{{job_id="t/a",reason="Error",detail="sigabrt"}} {NOW - 60}\n',
            "failed",
            "pod_failed",
        ),
        (
            f'{LAST_FAILURE}{{job_id="t/a",reason="DisruptionTarget",detail=""}} {NOW - 60}\n',
            "preempted",
            "pod_preempted",
        ),
    ],
)
def test_a_job_without_step_times_is_in_the_state_of_its_pods(page, state, kind):
    found = row(page)
    assert (found.state, found.kind) == (state, kind)
    assert found.step_seconds is None
    assert found.lost_fraction is None
    assert found.culprit == ("node n1" if kind else "")


def test_a_slow_job_names_its_step_time_its_loss_and_its_culprit(capsys):
    with Agent() as one, Agent("n1", range(4, 8)) as two:
        command = ["jobs", "--agent", one.url, "--agent", two.url, "--since", "9000d"]
        assert cli.main([*command, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)["t/j"]
        assert cli.main([*command, "--no-color"]) == 0
    shown = capsys.readouterr().out
    assert told["state"] == "slow"
    assert "rank 5" in told["culprit"]
    assert "node n1" in told["culprit"]
    assert 0.1 < told["lost_fraction"] < 0.9
    assert told["step_seconds"] > 0
    assert shown.startswith("1 job at ")
    line = next(line for line in shown.splitlines() if line.startswith("t/j"))
    assert "slow" in line
    assert f"{told['lost_fraction']:.0%}" in line
    assert "rank 5" in line


def test_a_job_that_hangs_is_hung_not_slow():
    read = from_pages([training_page(120.0)], job_reports.READS)
    evidence = job_reports.JobEvidence(read)
    (found,) = job_table.rows(job_reports.reports(TimingResults(), evidence, HANG_NOW))
    assert (found.state, found.kind) == ("hung", "hang")


@pytest.mark.parametrize(("state", "told"), [("unknown", True), ("slow", False)])
def test_an_unknown_state_leads_to_the_command_that_says_why(monkeypatch, capsys, state, told):
    one = job_table.JobRow("t/j", state, None, None, "", "", "")
    monkeypatch.setattr(jobs, "_jobs", lambda *_: ([one], ()))
    assert cli.main(["jobs", "--agent", "localhost:1", "--no-color"]) == 0
    assert ("`rankscope diagnose --job JOB`" in capsys.readouterr().out) is told


def test_the_table_is_shown_again_and_outlives_an_agent_that_is_silent_for_a_moment(
    monkeypatch, capsys
):
    with Agent() as one:
        pauses = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            one.silent = len(pauses) == 1
            if len(pauses) == 4:
                raise KeyboardInterrupt

        answer = one.answer
        one.silent = False
        one.answer = lambda path: None if one.silent else answer(path)
        monkeypatch.setattr(jobs, "time", Clock(pause))
        command = ["jobs", "--agent", one.url, "--since", "9000d", "--refresh", "2", "--no-color"]
        assert cli.main(command) == 130
    assert pauses == [2.0] * 4
    said = capsys.readouterr()
    assert said.out.count("1 job at ") == 3
    assert one.url in said.err


class Clock:
    """The module `time` whose pauses are somebody else's."""

    def __init__(self, sleep):
        self.sleep, self.time = sleep, time.time


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--refresh", "1"), "--refresh takes 2 seconds or more"),
        (("--refresh", "nan"), "--refresh takes 2 seconds or more"),
        (("--refresh", "inf"), "--refresh takes 2 seconds or more"),
        (("--refresh", "5", "--json"), "leave out --refresh"),
        (("--since", "soon"), "--since takes an age"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(flags, complaint, capsys):
    assert cli.main(["jobs", "--agent", "127.0.0.1:1", *flags]) == 1
    said = capsys.readouterr().err
    assert complaint in said
    assert len(said.splitlines()) == 1


def test_headings_stay_whole_in_a_terminal_that_is_too_narrow(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    with Agent() as one:
        assert cli.main(["jobs", "--agent", one.url, "--since", "90000d"]) == 0
    assert list(job_table.HEADS) in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_no_job_is_an_error(capsys):
    with Agent(ranks=()) as one:
        one.steps = lambda: json.dumps({"columns": [], "rows": []}).encode()
        assert cli.main(["jobs", "--agent", one.url]) == 1
    assert "there is no job" in capsys.readouterr().err


def test_kubectl_finds_it_as_a_plugin():
    """kubectl runs kubectl-rankscope for `kubectl rankscope`, with what follows as arguments."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    scripts = project["project"]["scripts"]
    assert scripts["kubectl-rankscope"] == scripts["rankscope"]
