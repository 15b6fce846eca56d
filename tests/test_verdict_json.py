import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from rankscope_analyzers.reports import verdict_json, verdict_text
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnosis
from rankscope_analyzers.stragglers.naive import NaiveAnswer
from rankscope_analyzers.text import runbooks
from simulated_jobs import Fault, Job, diagnosed, records


def judged(job=None, **changes):
    rows = records(job or Job(faults=(Fault("compute", (5,), 0.5),))).assign(**changes)
    return diagnosed(rows, job_id="team/job").verdict


def text(said, width=100):
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(verdict_text.render(said))
    return console.file.getvalue()


def test_json_of_a_straggler_names_class_ranks_cost_and_confidence():
    said = json.loads(json.dumps(verdict_json.as_object(judged()), allow_nan=False))
    assert said["verdict"]["class"] == "gpu_compute"
    assert said["verdict"]["ranks"] == [5]
    assert said["verdict"]["lost_fraction"] == pytest.approx(0.295, abs=0.02)
    assert 0.5 < said["verdict"]["confidence"] < 0.8
    assert [evidence["source"] for evidence in said["verdict"]["evidence"]] == [
        "compute_seconds",
        "sync_seconds",
        "step_seconds",
    ]
    assert len(said["ranks"]) == 8


def test_json_without_a_straggler_has_no_class_and_no_ranks():
    said = verdict_json.as_object(judged(Job()))["verdict"]
    assert (said["class"], said["ranks"], said["lost_fraction"]) == (None, [], 0.0)
    assert said["confidence"] == pytest.approx(1.0, abs=0.02)


def test_json_is_valid_where_nothing_was_measured():
    said = verdict_json.as_object(
        judged(Job(), compute_seconds=float("nan"), sync_seconds=float("nan"))
    )
    assert json.loads(json.dumps(said, allow_nan=False))["ranks"][0]["compute_seconds"] is None


def test_the_text_says_who_why_since_when_what_it_costs_and_what_to_do():
    verdict = replace(judged(), naive=NaiveAnswer(0, 0.01))
    shown = " ".join(text(verdict, width=400).split())
    assert "gpu_compute: rank 5 (node node-00000, GPU 5) computes 1." in shown
    assert "since 2025-10-09" in shown
    assert "of every step" in shown
    assert "GPU-hours so far" in shown
    assert "`rankscope runbook RankscopeStraggler`" in shown
    assert "Step times alone would blame rank" in shown


def test_waits_for_a_cpu_are_part_of_the_step_where_there_are_any():
    starved = judged(Job(faults=(Fault("cpu", (5,), 0.4),)))
    shown = text(starved, width=400)
    assert "data ▒ compute █ CPU wait ▓ sync ░" in shown
    assert "host_transient: rank 5" in shown
    waits = [rank["cpu_wait_seconds"] for rank in verdict_json.as_object(starved)["ranks"]]
    assert waits == pytest.approx([0.0] * 5 + [0.4] + [0.0] * 2)
    assert "CPU wait" not in text(judged(), width=400)


def test_the_text_of_a_healthy_job_says_so():
    assert "no straggler" in text(judged(Job()))


def test_the_text_says_when_there_is_no_verdict_and_why():
    assert "no verdict: only 4 usable steps" in text(judged(Job(steps=5)))


def test_why_there_is_no_verdict_comes_before_what_else_was_not_seen():
    averaged = "steps are means over intervals"
    job = JobRecords("job", records(Job(steps=5)), 8, (averaged,), live=False)
    said = diagnosis(job).verdict
    assert averaged in said.unobserved
    assert "no verdict: only 4 usable steps" in text(said)
    assert verdict_json.no_straggler(said).startswith("no verdict: only 4 usable steps")


def test_unmeasured_times_are_shown_as_unknown_and_said():
    shown = text(judged(Job(), data_seconds=float("nan")))
    assert "Not seen: data time is not measured on 8 of 8 ranks." in " ".join(shown.split())
    assert "0.0 ms" not in shown


def test_a_large_job_shows_its_culprit_and_says_what_it_hides():
    shown = text(judged(Job(ranks=64, faults=(Fault("compute", (50,), 0.5),))))
    assert "48 more in --json" in shown
    assert any(line.split()[:1] == ["50"] for line in shown.splitlines())


def test_every_runbook_that_a_finding_names_exists(pytestconfig):
    job = Job(ranks=32, groups=4)
    for kind in ("compute", "data", "transfer"):
        for ranks in ((1,), tuple(range(32))):
            fault = Fault(kind, ranks, 0.6, first_step=100)
            cause = judged(Job(ranks=32, groups=job.groups, faults=(fault,))).cause
            if cause is not None:
                assert (pytestconfig.rootpath / runbooks.path(cause.runbook)).is_file(), cause
