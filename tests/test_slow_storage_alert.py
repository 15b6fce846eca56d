"""The alert on slow storage, fed with what a watch exports of a job whose checkpoints got slow."""

from __future__ import annotations

from alert_series import OWNER
from alert_timelines import Case, gauge, steady
from promtool_tests import run
from rankscope_agent.contract.metrics import watch as metrics
from rankscope_analyzers.fusion.job_reports import JobEvidence, reports
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import TimingResults, diagnosis
from rankscope_analyzers.watch.series import WatchSeries
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server
from suite_jobs import fault, made, running
from test_hang_alert import selector

JOB = "team/llm"
FLAT = {"world": 16, "tensor": 1, "pipeline": 1, "steps": 260}


def exported(*faults):
    """Return the findings of step times that a watch exports of a job with these faults."""
    rows = running(made(*faults, **FLAT))
    judged = diagnosis(JobRecords(JOB, rows, None, (), live=True))
    now = float(rows["t_start_unix_seconds"].max())
    watch = WatchSeries()
    watch.update(reports(TimingResults((judged,)), JobEvidence(), now), now)
    return [
        sample
        for sample in watch.samples()
        if sample.metric in {metrics.FINDING_CULPRIT_INFO, metrics.FINDING_LOST_FRACTION}
    ]


def test_checkpoints_of_all_that_get_slow_fire_the_alert_and_healthy_ones_export_nothing(tmp_path):
    assert exported() == []
    slow = exported(fault("storage_checkpoint", "all_writers", 8.0, last=260))
    assert {dict(zip(one.metric.labels, one.labels, strict=True))["kind"] for one in slow} == {
        "storage_checkpoint"
    }
    (alert,) = [one for one in ALERTS if one.name == "RankscopeSlowStorage"]
    below = {metrics.FINDING_CULPRIT_INFO: 1.0, metrics.FINDING_LOST_FRACTION: 0.049}
    series = [gauge(selector(one), one.value, None, below[one.metric]) for one in slow]
    assert len(series) == 2
    case = Case((*series, steady("rankscope_watch_last_evaluation_timestamp_seconds"), OWNER))
    done = run(tmp_path, require_server("promtool"), alert, case, None)
    assert done.returncode == 0, done.stdout + done.stderr
