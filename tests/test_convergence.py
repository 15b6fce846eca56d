"""How a job's loss stands: by its findings and levels, as a watch exports it, on the dashboard."""

from __future__ import annotations

import pytest

from faulty_series import JOB, NODES, NOW, ODD, Reading, befell, observed, of_odd_rank
from panel_queries import expression, gives
from rankscope_agent.contract.metrics import reported, training
from rankscope_agent.contract.metrics import watch as metrics
from rankscope_analyzers.fusion.job_reports import JobEvidence, reports
from rankscope_analyzers.layers import convergence
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from rankscope_analyzers.watch.series import WatchSeries
from rankscope_dashboards.boards.learning import STATUSES
from test_hang_alert import selector

__all__ = ["gives"]


def losses(level: float, lowest: float, rank: int = ODD) -> tuple[Reading, Reading]:
    return tuple(
        Reading(metric, {"job_id": JOB, "rank": str(rank)}, value)
        for metric, value in ((reported.LOSS_LEVEL, level), (reported.LOSS_LOWEST, lowest))
    )


BEFORE = of_odd_rank(reported.LOSS_BEFORE_RESTART, 1.0)
CASES = [
    ((), None),
    ((of_odd_rank(reported.LOSS_LEVEL, 2.0),), None),
    (losses(2.1, 2.0), "at_lowest"),
    (losses(2.11, 2.0), "above_lowest"),
    (losses(-1.96, -2.0), "at_lowest"),
    (losses(-1.8, -2.0), "above_lowest"),
    ((*losses(2.0, 2.0, rank=0), *losses(2.2, 2.0)), "above_lowest"),
    ((*losses(1.6, 1.6), BEFORE), "jumped"),
    ((*losses(4.1, 2.0), BEFORE), "diverging"),
    ((*losses(4.1, 2.0), befell("loss_not_finite")), "not_finite"),
    (
        (*losses(2.0, 2.0), befell("loss_not_finite"), of_odd_rank(reported.LOSS, 2.0)),
        "at_lowest",
    ),
]


KNOWN = [
    Reading(training.RANK_INFO, {"job_id": JOB, "rank": f"{rank}", "node": NODES[1]}, 1)
    for rank in (0, ODD)
]


def reported_on(*readings: Reading):
    return reports(TimingResults(()), JobEvidence(observed(*KNOWN, *readings)), NOW)


def exported(*readings: Reading):
    """Return what a watch exports of how the job's loss stands."""
    watch = WatchSeries()
    errors = watch.update(reported_on(*readings), NOW)
    assert errors == ()
    return [one for one in watch.samples() if one.metric is metrics.JOB_CONVERGENCE]


@pytest.mark.parametrize(("readings", "status"), CASES, ids=range(len(CASES)))
def test_a_loss_stands_as_its_findings_say_or_its_level(readings, status):
    found = exported(*readings)
    assert [one.labels for one in found] == ([] if status is None else [(JOB, status)])


def test_the_dashboard_has_a_colour_for_every_status_and_shows_what_a_watch_exports(gives):
    assert set(STATUSES) == set(metrics.CONVERGENCE_STATUSES)
    shown = expression("checkpoints", "Convergence")
    for readings, status in CASES:
        series = {selector(one): "1x20" for one in exported(*readings)}
        gives(shown, series, {"{}": list(STATUSES).index(status)} if status else {})


def test_a_defect_here_costs_a_job_nothing_else(monkeypatch):
    def broken(*_):
        raise KeyError("defect")

    monkeypatch.setattr(convergence, "status", broken)
    (report,) = reported_on(*losses(4.1, 2.0))
    assert report.convergence is None
    assert [one.cause.kind for one in report.incidents] == ["loss_diverging"]
    assert any("defect" in str(one) for one in report.errors)
