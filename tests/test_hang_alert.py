"""The alert on hangs, fed with the series that a watch exports of a job that hangs."""

from __future__ import annotations

import json

from alert_series import OWNER
from alert_timelines import Case, gauge, steady
from hanging_jobs import NOW, reported, training_page
from promtool_tests import run
from rankscope_agent.contract.metrics import watch as metrics
from rankscope_analyzers.watch.series import WatchSeries
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server


def exported(page):
    """Return the findings that a watch exports of a job with this page."""
    watch = WatchSeries()
    watch.update([reported(page)], NOW)
    return [
        sample
        for sample in watch.samples()
        if sample.metric in {metrics.FINDING_CULPRIT_INFO, metrics.FINDING_LOST_FRACTION}
    ]


def selector(sample):
    pairs = zip(sample.metric.labels, sample.labels, strict=True)
    text = ",".join(f"{name}={json.dumps(value)}" for name, value in pairs)
    return f"{sample.metric.name}{{{text}}}"


def test_what_a_watch_exports_of_a_hang_fires_the_alert_and_its_end_ends_it(tmp_path):
    assert exported(training_page(2.0)) == []
    (alert,) = [one for one in ALERTS if one.name == "RankscopeHang"]
    below = {metrics.FINDING_CULPRIT_INFO: 1.0, metrics.FINDING_LOST_FRACTION: 0.049}
    series = [
        gauge(selector(one), one.value, None, below[one.metric])
        for one in exported(training_page(90.0, stopped=[0, 1, 0, 0]))
    ]
    assert len(series) == 2
    case = Case((*series, steady("rankscope_watch_last_evaluation_timestamp_seconds"), OWNER))
    done = run(tmp_path, require_server("promtool"), alert, case, None)
    assert done.returncode == 0, done.stdout + done.stderr
