"""The class, the summary and the first incident of a report speak of the same fault."""

from rankscope_analyzers.findings.finding import Finding, Where
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.reports import job_json, job_summary
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import TimingResults, diagnosis
from simulated_jobs import Fault, Job, diagnosed, records

RUNBOOK = "RankscopeStraggler"


def reported(*findings):
    past = Fault("compute", (3,), 0.5, first_step=60, last_step=120)
    judged = diagnosed(records(Job(faults=(past,))))
    evidence = JobEvidence(findings=findings)
    (report,) = job_reports.reports(TimingResults((judged,)), evidence, 1_760_000_300.0)
    return report, job_json.as_object(report)


def failed():
    return Finding(
        kind="missing_rank",
        layer="training",
        severity="page",
        job_id="job",
        where=Where(ranks=(6,)),
        summary="rank 6 is gone",
        action="Look for it.",
        runbook=RUNBOOK,
        evidence=(),
        since_unix_seconds=1_760_000_250.0,
        until_unix_seconds=None,
        source="",
    )


def test_a_straggler_that_ended_is_told_as_past():
    report, said = reported()
    assert said["verdict"]["class"] == "gpu_compute"
    assert said["verdict"]["until_unix_seconds"] == said["incidents"][0]["until_unix_seconds"]
    assert said["verdict"]["summary"] == report.incidents[0].summary


def test_what_no_step_time_shows_leaves_no_class_of_another_fault():
    report, said = reported(failed())
    assert report.incidents[0].cause.kind == "missing_rank"
    assert (said["verdict"]["class"], said["verdict"]["ranks"]) == (None, [])
    assert said["verdict"]["summary"] == "rank 6 is gone"
    assert [other["class"] for other in said["other_findings"]] == ["gpu_compute"]


def test_the_headline_says_why_there_is_no_verdict_before_what_else_was_not_seen():
    job = JobRecords("job", records(Job(steps=5)), 8, ("steps are means",), live=False)
    judged = TimingResults((diagnosis(job),))
    (report,) = job_reports.reports(judged, JobEvidence(), 1_760_000_300.0)
    assert "steps are means" in report.unobserved
    assert job_summary.headline(report).startswith("No verdict: only 4 usable steps")
