"""How long what NCCL's logs count is a problem of a job, from pages as agents write them."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.metrics import agent, nccl_log, training
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers import nccl_transport
from rankscope_analyzers.layers.job_view import job_view
from rankscope_analyzers.layers.rank_locations import rank_locations
from rankscope_analyzers.stragglers.diagnosis import TimingResults

NOW = 1_800_000_000.0
POD = 'pod_namespace="ml",pod_name="a-{}"'
TIMEOUT = nccl_log.NCCL_TIMEOUTS.name + "{{" + POD + ',op="ALLREDUCE"}} 4'
IB_ERROR = nccl_log.NCCL_IB_ERRORS.name + "{{" + POD + ',device="mlx5_0",status="12"}} 1'
INDIRECT = nccl_log.NCCL_GDR_MISSING.name + "{{" + POD + "}} 8"


def page(
    counter: str,
    warned: tuple[float, ...] = (600.0,),
    stepped: tuple[float, ...] = (0.5,),
    step: float = 1.0,
    ago: float = 0.0,
) -> Page:
    """Return the page of a node some time ago.

    Args:
        counter: what NCCL's logs of each pod show.
        warned: how long ago the newest warning of each pod was.
        stepped: how long ago the rank of each pod ended a step.
        step: how long that took.
        ago: how old the page is.
    """
    lines = [f"{agent.SNAPSHOT_TIMESTAMP.name} {NOW - ago}"]
    for pod, since in enumerate(warned):
        warning = f"{nccl_log.NCCL_LAST_WARNING.name}{{{POD.format(pod)}}} {NOW - since}"
        lines += [counter.format(pod), warning]
    for rank, since in enumerate(stepped):
        labels = f'job_id="ml/a",rank="{rank}"'
        lines += [
            f'{training.RANK_INFO.name}{{{labels},{POD.format(rank)},pod_uid="u-{rank}"}} 1',
            f"{training.RANK_ALIVE.name}{{{labels}}} 1",
            f"{training.LAST_STEP_TIMESTAMP.name}{{{labels}}} {NOW - since}",
            f"{training.LAST_STEP_SECONDS.name}{{{labels}}} {step}",
        ]
    return Page("n1", NOW - ago, "\n".join(lines) + "\n")


def found(*pages: Page):
    observed = from_pages(pages, job_reports.READS)
    view = job_view("ml/a", rank_locations(observed).of("ml/a", None))
    return [(one.kind, one.until_unix_seconds) for one in nccl_transport.findings(observed, view)]


COUNTERS = pytest.mark.parametrize(
    ("counter", "kind"), [(TIMEOUT, "collective_timeout"), (IB_ERROR, "ib_errors")]
)


@COUNTERS
def test_what_was_counted_is_over_once_ranks_make_steps_again(counter, kind):
    assert found(page(counter, stepped=(1200.0,))) == [(kind, None)]
    assert found(page(counter, stepped=(0.5,))) == [(kind, NOW - 600.0)]


@COUNTERS
def test_an_hour_later_only_a_job_that_stands_since_is_told(counter, kind):
    assert found(page(counter, warned=(3590.0,))) == [(kind, NOW - 3590.0)]
    assert found(page(counter, warned=(3610.0,))) == []
    assert found(page(counter, warned=(3610.0,), stepped=(4200.0,))) == [(kind, None)]


def test_the_step_that_a_rank_was_in_does_not_show_that_its_job_goes_on():
    told = [("ib_errors", None)]
    assert found(page(IB_ERROR, warned=(60.0,), stepped=(30.0,), step=40.0)) == told
    assert found(page(IB_ERROR, warned=(60.0,), stepped=(15.0,), step=40.0)) == told
    assert found(page(IB_ERROR, warned=(60.0,), stepped=(5.0,), step=40.0)) != told


def test_it_is_not_over_while_the_ranks_of_one_of_its_pods_stand():
    both = page(TIMEOUT, warned=(7200.0, 600.0), stepped=(0.5, 1200.0))
    assert found(both) == [("collective_timeout", None)]


def test_a_warning_of_something_else_brings_nothing_back():
    before, now = (page(TIMEOUT, warned=(ago,), ago=ago) for ago in (30.0, 0.0))
    assert found(now) == [("collective_timeout", None)]
    assert found(before, now) == [("collective_timeout", NOW - 30.0)]


def test_how_the_processes_of_now_are_connected_lasts_while_they_train():
    assert found(page(INDIRECT, warned=(7200.0,))) == [("gdr_missing", None)]


@COUNTERS
def test_a_hang_hours_after_it_has_another_cause(counter, kind):
    old = page(counter, warned=(18_000.0,), stepped=(200.0,))
    evidence = JobEvidence(from_pages([old], job_reports.READS))
    (report,) = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
    assert [incident.cause.kind for incident in report.incidents] == ["hang"]


def test_a_timeout_after_which_steps_were_made_is_no_cause_of_the_hang_that_follows():
    """The watchdog ended the attempt before, a quarter of an hour before this one stood still."""
    again = page(TIMEOUT, warned=(1100.0,), stepped=(200.0,))
    evidence = JobEvidence(from_pages([again], job_reports.READS))
    (report,) = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
    assert [one.cause.kind for one in report.incidents] == ["hang", "collective_timeout"]
