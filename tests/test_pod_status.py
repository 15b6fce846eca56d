"""Why a job's pods do not run, by what agents export of them."""

import pytest

from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.reports.job_summary import headline
from rankscope_analyzers.stragglers.diagnosis import TimingResults

NOW = 1_795_170_000.0
JOB = 'job_id="team/llm"'


def waiting(reason, count=1):
    return f'rankscope_job_waiting_pods{{{JOB},reason="{reason}"}} {count}\n'


def failed(reason, detail, ago):
    labels = f'{JOB},reason="{reason}",detail="{detail}"'
    return f"rankscope_job_last_failure_timestamp_seconds{{{labels}}} {NOW - ago}\n"


def in_phase(phase, count=1):
    return f'rankscope_job_pods{{{JOB},phase="{phase}"}} {count}\n'


def report(asked=None, **pages):
    read = [Page(node, NOW + at, text) for node, text in pages.items() for at in (-60, 0)]
    evidence = job_reports.JobEvidence(from_pages(read, job_reports.READS))
    return job_reports.reports(TimingResults(), evidence, NOW, asked)


def kinds(one):
    found = {signal.kind: signal.where.nodes for signal in one.observations}
    return found | {incident.cause.kind: incident.where.nodes for incident in one.incidents}


@pytest.mark.parametrize(
    ("reason", "kind", "runbook"),
    [
        ("Init:CrashLoopBackOff", "crash_loop", "RankscopeCrashLoop"),
        ("ImagePullBackOff", "image_not_pulled", "RankscopeImagePullFailing"),
        ("CreateContainerConfigError", "container_not_created", "RankscopeContainerNotCreated"),
        ("RunContainerError", "pod_pending", "RankscopeJobPending"),
        ("ContainerCreating", "pod_pending", "RankscopeJobPending"),
    ],
)
def test_a_job_that_has_only_pods_is_told_why_they_wait(reason, kind, runbook):
    (one,) = report(n1=waiting(reason, 2) + in_phase("Pending", 2))
    assert kinds(one) == {kind: ("n1",)}
    assert one.incidents[0].runbook == runbook
    assert "2 pods on node n1 are" in one.incidents[0].summary
    assert reason in one.incidents[0].summary


def test_a_crash_loop_is_told_once_with_its_newest_failure():
    page = waiting("CrashLoopBackOff") + failed("OOMKilled", "sigkill", 30) + in_phase("Running")
    (one,) = report(n1=page + failed("Error", "application", 90))
    assert kinds(one) == {"crash_loop": ("n1",)}
    assert "OOMKilled (sigkill)" in one.incidents[0].summary


@pytest.mark.parametrize(("ago", "told"), [(3599, ["pod_failed"]), (3600, [])])
def test_a_failure_is_news_for_an_hour(ago, told):
    running = in_phase("Running")
    (one,) = report(n1=running + failed("Evicted", "", ago))
    assert list(kinds(one)) == told


def test_a_failure_is_told_with_its_reason_and_is_not_told_again_as_a_failed_pod():
    (one,) = report(n1=failed("Evicted", "", 600) + in_phase("Failed"))
    assert kinds(one) == {"pod_failed": ("n1",)}
    (incident,) = one.incidents
    assert "Evicted" in incident.summary
    assert incident.since_unix_seconds == pytest.approx(NOW - 600)


def test_a_preemption_is_no_failure():
    (one,) = report(n1=failed("DisruptionTarget", "PreemptionByScheduler", 60))
    assert kinds(one) == {"pod_preempted": ("n1",)}
    assert "PreemptionByScheduler" in one.incidents[0].summary


def test_failures_of_two_nodes_are_both_told():
    (one,) = report(
        n1=failed("Error", "sigabrt", 60),
        n2=failed("OOMKilled", "sigkill", 65) + in_phase("Failed"),
    )
    assert {node for incident in one.incidents for node in incident.where.nodes} == {"n1", "n2"}


@pytest.mark.parametrize("page", [in_phase("Succeeded"), in_phase("Failed")])
def test_pods_that_lie_about_make_no_report_unless_it_is_asked_for(page):
    assert report(n1=page + failed("Error", "application", 90_000)) == ()
    (one,) = report(n1=page + failed("Error", "application", 90_000), asked="team/llm")
    assert kinds(one) == ({"pod_failed": ("n1",)} if "Failed" in page else {})
    assert report(n1=page, asked="team/other") == ()


def test_a_job_whose_pods_run_has_a_report_without_a_fault():
    (one,) = report(n1=in_phase("Running", 2))
    assert one.incidents == ()
    assert "Nothing is known to be wrong" in headline(one)


@pytest.mark.parametrize(("ago", "told"), [(3599, True), (3601, False)])
def test_a_failure_of_more_than_an_hour_ago_explains_nothing_of_now(ago, told):
    (one,) = report(n1=failed("Evicted", "", ago) + in_phase("Running"))
    assert kinds(one) == ({"pod_failed": ("n1",)} if told else {})


LISTED = 'rankscope_pod_source_up{source="api"} 1\nrankscope_page_series_dropped 0\n'
STUCK = waiting("ImagePullBackOff") + in_phase("Pending") + LISTED


def kinds_after(*pages):
    """Return the kinds of the job's findings, None without a report, by a node's pages in turn."""
    read = [Page("n1", NOW + 30 * at, text) for at, text in enumerate(pages)]
    evidence = job_reports.JobEvidence(from_pages(read, job_reports.READS))
    found = job_reports.reports(TimingResults(), evidence, NOW + 30 * len(pages))
    return [*kinds(found[0])] if found else None


def test_pods_that_run_or_are_deleted_no_longer_wait():
    assert kinds_after(STUCK, STUCK) == ["image_not_pulled"]
    assert kinds_after(STUCK, in_phase("Running")) == []
    assert kinds_after(in_phase("Pending") + LISTED, in_phase("Running") + LISTED) == []
    assert kinds_after(STUCK, LISTED) is None
    assert kinds_after(STUCK, LISTED, LISTED.replace("} 1", "} 0")) is None


@pytest.mark.parametrize(
    "newer",
    [
        LISTED.replace("} 1", "} 0"),  # an agent that was just started
        LISTED.replace("dropped 0", "dropped 3") + in_phase("Running"),
        "rankscope_page_series_dropped 0\n",  # the collector did not end in time
    ],
)
def test_pods_that_a_newer_page_may_lack_for_another_reason_still_wait(newer):
    assert kinds_after(STUCK, newer) == ["image_not_pulled"]


def test_a_device_that_is_healthy_again_is_not_called_unhealthy():
    pod = 'pod_namespace="team",pod_name="llm-0"'
    runs = f'rankscope_rank_info{{{JOB},rank="0",{pod}}} 1\n' + in_phase("Running")
    ill = f'rankscope_device_unhealthy{{device_id="GPU-0",{pod}}} 1\n'
    assert kinds_after(runs, runs + ill) == ["device_unhealthy"]
    assert kinds_after(runs + ill, runs) == []
