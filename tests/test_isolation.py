"""What raises on one job's data, or one agent's, costs that answer alone, and is told."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import rankscope_analyzers
from faulty_clusters import JOB, Cluster
from rankscope_analyzers import cli, layers
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.commands.watch import JobSource
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.agent_pages import AgentPoll
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.isolation.boundary import PARTS, AnalysisError, ErrorLog, attempt
from rankscope_analyzers.layers.job_view import job_view
from rankscope_analyzers.reports import html as html_report
from rankscope_analyzers.reports import job_json, job_summary
from rankscope_analyzers.runs import keeping
from rankscope_analyzers.runs.files import RunRecordFiles
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers import trace_verdicts
from rankscope_analyzers.stragglers.diagnosis import TimingResults, diagnose_each, diagnosis
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.leadership import SingleInstance
from simulated_jobs import Fault, Job, records

ERRORS_KEPT = 4096

FIXTURES = Path(__file__).parent / "fixtures" / "running_jobs"
SLOW = Job(ranks=16, steps=120, faults=(Fault("compute", (13,), 0.5, first_step=60),))


class Odd:
    """Records of which every look raises."""

    def __init__(self, error):
        self.error = error

    def __getattr__(self, _):
        raise self.error

    def __len__(self):
        raise self.error


def job(name, rows):
    return JobRecords(name, rows, None, (), live=True)


def two_jobs(error=None):
    return job("good", records(SLOW)), job("bad", Odd(error or ZeroDivisionError("by 7")))


def watched(jobs, evidence=JobEvidence(), **more):  # noqa: B008 - it is frozen
    """Return what a watch exports of these jobs at its first look, and what it wrote."""
    exported, said = FindingsExporter(), []
    log = ErrorLog(said.append)
    watch_command.evaluate(JobSource(lambda: Gathered(jobs, evidence), **more), exported, log)
    return exported.text(), said


@pytest.mark.parametrize("name", ["ck3", "syn"])
def test_a_slow_rank_beside_one_that_writes_checkpoints_raises_nothing(name):
    """Two ranks: the first writes checkpoints in its training thread, the second is slow."""
    rows = pd.read_csv(FIXTURES / f"{name}.csv.gz")
    found = diagnose_each([job(name, rows)])
    assert (found.errors, found.unusable) == ((), {})
    assert len(found.diagnoses) == 1


@pytest.mark.parametrize(
    "error", [ValueError("zero-size array"), RecursionError("too deep"), MemoryError()]
)
def test_a_job_on_which_an_analyzer_raises_costs_no_other_its_verdict(error):
    good, bad = two_jobs(error)
    found = diagnose_each([bad, good])
    assert [one.frame.job_id for one in found.diagnoses] == ["good"]
    (raised,) = found.errors
    assert (raised.part, raised.about) == ("timing", "bad")
    assert type(error).__name__ in raised.reason
    assert "Odd" not in raised.location
    assert "Traceback" in raised.trace


def test_the_report_says_what_was_not_concluded_in_every_form():
    first, second = job_reports.reports(diagnose_each(two_jobs()), JobEvidence(), 1.0)
    assert (first.job_id, first.incidents[0].where.ranks) == ("good", (13,))
    assert second.job_id == "bad"
    assert job_summary.headline(second).startswith("No verdict: a verdict on its step times: ")
    said = job_json.as_object(second)
    assert said["analysis_errors"][0]["part"] == "timing"
    assert "ZeroDivisionError: by 7" in said["verdict"]["summary"]
    assert "ZeroDivisionError: by 7" in html_report.write([first, second])
    assert job_json.as_object(first)["analysis_errors"] == []


def test_a_watch_goes_on_counts_and_names_it_and_writes_its_traceback_once(capsys):
    good, bad = two_jobs()
    exported, said = FindingsExporter(), []
    log = ErrorLog(said.append)
    sight = JobSource(lambda: Gathered((good, bad), JobEvidence()))
    for _ in range(3):
        watch_command.run_cycle(sight, exported, SingleInstance(), 0.0, log)
    page = exported.text()
    assert 'rankscope_finding_active{job_id="good",kind="gpu_compute"' in page
    assert 'rankscope_job_analysis_errors{job_id="bad"} 1.0' in page
    assert 'rankscope_job_analysis_errors{job_id="good"} 0.0' in page
    assert 'rankscope_watch_analysis_errors_total{part="timing"} 3.0' in page
    assert "rankscope_watch_failed_evaluations_total 0.0" in page
    assert sum(line.startswith("Traceback") for line in said) == 1
    assert said[0].startswith("bad: a verdict on its step times: ZeroDivisionError: by 7 at ")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)


def test_every_part_is_counted_from_the_start():
    page, _ = watched(())
    for part in PARTS:
        assert f'rankscope_watch_analysis_errors_total{{part="{part}"}} 0.0' in page


@pytest.mark.parametrize("error", [RuntimeError("odd"), RecursionError(), MemoryError()])
def test_a_look_that_raises_is_a_failed_one_and_the_next_one_comes(error):
    def read():
        if looks.append(None) or len(looks) == 1:
            raise error
        return Gathered((good,), JobEvidence())

    looks, said, exported = [], [], FindingsExporter()
    good, _ = two_jobs()
    log = ErrorLog(said.append)
    watch_command.evaluate(JobSource(read), exported, log)
    assert 'rankscope_watch_analysis_errors_total{part="look"} 1.0' in exported.text()
    assert "rankscope_watch_failed_evaluations_total 1.0" in exported.text()
    watch_command.evaluate(JobSource(read), exported, log)
    assert 'rankscope_finding_active{job_id="good"' in exported.text()


class Raising:
    """A layer that raises for one job and says nothing of others."""

    def __init__(self, job_id):
        self.job_id = job_id

    def __call__(self, _, view):
        if view.job_id == self.job_id:
            raise KeyError("uuid")
        yield from ()


def test_a_layer_that_raises_costs_what_it_would_have_said_and_is_not_taken_as_seen(monkeypatch):
    cluster = Cluster({"gpu-0": "healthy", "gpu-1": "thermal@5"}, SLOW)
    seen = cluster.report()
    broken = tuple(
        replace(one, findings=Raising(JOB)) if one.layer == "kernel" else one
        for one in layers.SUBJECTS
    )
    monkeypatch.setattr(layers, "SUBJECTS", broken)
    said = cluster.report()
    assert [one.cause.kind for one in said.incidents] == ["thermal_slowdown"]
    assert said.errors[0].part == "layer"
    assert any("KeyError: 'uuid'" in sentence for sentence in said.unobserved)
    assert not seen.errors
    monkeypatch.setattr(layers, "SUBJECTS", (replace(layers.SUBJECTS[0], findings=Raising(JOB)),))
    assert layers.findings_of_job(JobEvidence().observed, job_view(JOB, {})).failed_layers == {
        "gpu"
    }


def test_findings_that_cannot_be_put_together_leave_what_step_times_say(monkeypatch):
    fuse = job_reports.fuse

    def odd(timed, others, locations, observed):
        if observed:
            raise IndexError("no such place")
        return fuse(timed, others, locations, observed)

    monkeypatch.setattr(job_reports, "fuse", odd)
    said = Cluster({"gpu-0": "healthy", "gpu-1": "thermal@5"}, SLOW).report()
    assert said.incidents[0].cause.kind == "gpu_compute"
    assert said.incidents[0].where.ranks == (13,)
    assert "IndexError" in said.missing[0]


def test_where_nothing_can_be_put_together_the_report_says_that_alone(monkeypatch):
    def odd(*_):
        raise IndexError("no such place")

    monkeypatch.setattr(job_reports, "fuse", odd)
    good, _ = two_jobs()
    (said,) = job_reports.reports(diagnose_each([good]), JobEvidence(), 1.0)
    assert (said.verdict, said.incidents) == (None, ())
    assert job_summary.headline(said).startswith("No verdict: what its layers say together: ")


def test_places_that_raise_cost_no_verdict_on_step_times(monkeypatch):
    def odd(_):
        raise KeyError("node")

    monkeypatch.setattr(job_reports, "rank_locations", odd)
    good, _ = two_jobs()
    page, said = watched((good, job("fine", records(Job()))))
    assert 'rankscope_finding_active{job_id="good"' in page
    assert 'rankscope_job_analysis_errors{job_id="fine"} 1.0' in page
    assert 'rankscope_watch_analysis_errors_total{part="look"} 1.0' in page, "one, not one per job"
    assert sum(line.startswith("Traceback") for line in said) == 1


def test_a_report_that_makes_no_series_costs_no_other_its_own(monkeypatch):
    good, _ = two_jobs()
    real = job_reports.reports

    def one_odd(*arguments, **named):
        (report,) = real(*arguments, **named)
        return (replace(report, job_id="odd", incidents=(None,)), report)

    monkeypatch.setattr(job_reports, "reports", one_odd)
    page, said = watched((good,))
    assert 'rankscope_finding_active{job_id="good"' in page
    assert 'rankscope_watch_analysis_errors_total{part="report"} 1.0' in page
    assert said[0].startswith("odd: ")


def test_a_run_record_that_raises_costs_no_other_its_own(monkeypatch, tmp_path):
    real = keeping.record

    def odd(report, ranks):
        if report.job_id == "a":
            raise TypeError("unhashable")
        return real(report, ranks)

    monkeypatch.setattr(keeping, "record", odd)
    jobs = (job("a", records(Job())), job("b", records(Job())))
    sight = JobSource(
        lambda: Gathered(jobs, JobEvidence(), AgentPoll((), {}, (), 0.0)), RunRecordFiles(tmp_path)
    )
    exported = FindingsExporter()
    watch_command.evaluate(sight, exported, ErrorLog(lambda _: None))
    assert [file.name for file in tmp_path.iterdir()] == ["b.attempt-0.json"]
    assert 'rankscope_watch_analysis_errors_total{part="report"} 1.0' in exported.text()


def test_diagnose_says_it_and_reports_the_rest(monkeypatch, capsys, tmp_path):
    odd = JobRecords("bad", Odd(ZeroDivisionError("by 7")), None, (), live=False)
    good = replace(odd, job_id="good", records=records(SLOW))
    monkeypatch.setattr(gather, "of_files", lambda *_: Gathered((odd, good), JobEvidence()))
    page = tmp_path / "page.html"
    assert cli.main(["diagnose", "--trace", "x", "--html", str(page), "--no-color"]) == 0
    said = capsys.readouterr()
    assert "rank 13" in said.out
    assert "No verdict: a verdict on its step times: ZeroDivisionError: by 7" in unwrapped(said.out)
    assert said.err.count("Traceback") == 1
    assert "ZeroDivisionError: by 7" in page.read_text()
    assert cli.main(["diagnose", "--trace", "x", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bad"]["analysis_errors"][0]["reason"] == "ZeroDivisionError: by 7"
    assert found["good"]["verdict"]["ranks"] == [13]


def unwrapped(text):
    return re.sub(r"[\s│]+", " ", text)


def test_a_trace_that_cannot_be_read_costs_no_other_its_verdict(capsys, tmp_path):
    for name in ("good", "deep", "short"):
        (tmp_path / name).mkdir()
        records(SLOW).to_csv(tmp_path / name / "records.csv", index=False)
    (tmp_path / "deep" / "meta.json").write_text("[" * 100_000)
    (tmp_path / "short" / "records.csv").write_text("")
    assert cli.main(["diagnose", "--trace", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["good"]
    assert found["good"]["verdict"]["ranks"] == [13]
    notes = " ".join(found["good"]["unobserved"])
    assert str(tmp_path / "deep") in notes
    assert str(tmp_path / "short") in notes


def test_verdicts_on_many_traces_leave_out_what_raises(monkeypatch, tmp_path):
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        records(SLOW).to_csv(tmp_path / name / "records.csv", index=False)
    real = trace_verdicts.feed.detect

    def odd(table, arranged):
        if seen.append(table) or len(seen) == 2:
            raise IndexError("no such row")
        return real(table, arranged)

    seen = []
    monkeypatch.setattr(trace_verdicts.feed, "detect", odd)
    judged = trace_verdicts.judge_all([tmp_path / "good", tmp_path / "bad"], 1, lambda: None)
    assert [one.verdicts is None for one in judged] == [False, True]
    assert "IndexError: no such row" in judged[1].notes[0]


def test_a_gpu_whose_adapter_has_no_name_costs_no_job_its_place():
    text = (
        'rankscope_gpu_nic_info{uuid="GPU-1",distance="PIX"} 1\n'
        'rankscope_rank_info{job_id="t/j",rank="0",uuid="GPU-1"} 1\n'
    )
    seen = from_pages([Page("n0", 1.0, text)], job_reports.READS)
    (said,) = job_reports.reports(TimingResults(), JobEvidence(seen), 1.0)
    assert (said.locations[0].node, said.locations[0].nics, said.errors) == ("n0", (), ())


def test_the_log_is_bounded_and_tells_a_line_that_raises_once_for_each_job():
    said = []
    log = ErrorLog(said.append)

    def broken(number):
        raise ValueError(f"index {number} is out of bounds")

    for number in range(3):
        log.note([attempt("timing", "a", lambda number=number: broken(number))])
    log.note([attempt("timing", "b", lambda: broken(9))])
    assert [line[:3] for line in said if line.startswith(("a: ", "b: "))] == ["a: ", "b: "]
    first = attempt("timing", "a", lambda: broken(0))
    log.note(replace(first, about=str(number)) for number in range(ERRORS_KEPT))
    said.clear()
    log.note([first])
    assert said, "the longest known is forgotten"


def test_an_error_says_what_where_and_shows_no_escapes():
    def broken():
        raise ValueError("a\x1b[2J" * 1000)

    error = attempt("report", "t/j", broken)
    assert isinstance(error, AnalysisError)
    assert error.reason.startswith(r"ValueError: a\x1b[2J")
    assert error.reason.endswith("...")
    assert len(error.reason) < 500
    assert error.location.startswith("test_isolation.py:")
    assert attempt("report", "t/j", lambda: 7) == 7


def test_an_interrupt_is_no_error():
    def ended():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt("look", "", ended)


CATCHES_ALL = re.compile(r"Exception|except\s*\*?\s*:")


def test_whatever_is_raised_is_caught_in_one_place_of_the_analyzers_alone():
    folder = Path(rankscope_analyzers.__file__).parent
    found = {
        path.name
        for path in folder.rglob("*.py")
        if CATCHES_ALL.search(path.read_text())  # only these are parsed
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or {"Exception", "BaseException"} & names(node.type))
    }
    assert found == {"boundary.py"}


def names(node):
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def test_one_job_can_still_be_judged_by_itself():
    good, bad = two_jobs()
    assert diagnosis(good).verdict.cause.where.ranks == (13,)
    with pytest.raises(ZeroDivisionError):
        diagnosis(bad)
