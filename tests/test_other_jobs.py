"""Jobs that share a node: what the node alone is known to have logged is nobody's for certain."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.metrics import agent, nccl_log, nccl_ras, pods, training
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from rankscope_analyzers.verification import nccl_criteria
from rankscope_analyzers.verification.evidence import Settings, evidence

NOW = 1_800_000_000.0
OUTSIDE = 'pod_namespace="",pod_name=""'
NOBODY = TimingResults((), {}, ())


def rank(job: str, *, began: float, ended: float | None = None, pod: str = "") -> str:
    """Return the series of a job's only rank: when it was started, and when it ended."""
    labels = f'job_id="{job}",rank="0"'
    namespace = job.partition("/")[0] if pod else ""
    place = f'pod_namespace="{namespace}",pod_name="{pod}"'
    lines = [
        f'{training.RANK_INFO.name}{{{labels},{place},local_rank="0"}} 1',
        f"{training.RANK_ALIVE.name}{{{labels}}} {int(ended is None)}",
    ]
    if ended is None:
        lines.append(f"{pods.RANK_STARTED.name}{{{labels}}} {NOW - began}")
    else:
        lines.append(f"{training.RANK_ENDED.name}{{{labels}}} {NOW - ended}")
    return "\n".join(lines) + "\n"


def gave_up(ago: float, pod: str = OUTSIDE) -> str:
    return (
        f'{nccl_log.NCCL_TIMEOUTS.name}{{{pod},op="ALLREDUCE"}} 4\n'
        f'{nccl_log.NCCL_SOCKET_FALLBACK.name}{{{pod},reason=""}} 0\n'
        f"{nccl_log.NCCL_LAST_WARNING.name}{{{pod}}} {NOW - ago}\n"
    )


def seen(*parts: str) -> Observed:
    page = Page("n1", NOW, f"{agent.SNAPSHOT_TIMESTAMP.name} {NOW}\n" + "".join(parts))
    return from_pages([page], job_reports.READS)


def reports(*parts: str) -> dict[str, JobReport]:
    found = job_reports.reports(NOBODY, JobEvidence(seen(*parts)), NOW)
    return {one.job_id: one for one in found}


def blamed(*parts: str) -> list[str]:
    """Return the jobs with an incident."""
    return sorted(job for job, report in reports(*parts).items() if report.incidents)


def test_the_logs_outside_of_pods_are_those_of_the_only_job_there():
    assert blamed(rank("101", began=900.0), gave_up(100.0)) == ["101"]
    others = rank("ml/b", began=900.0, pod="b-0")
    assert blamed(rank("101", began=900.0), others, gave_up(100.0)) == ["101"]


@pytest.mark.parametrize("ended", [None, 100.0])
def test_of_two_jobs_outside_of_pods_neither_has_the_logs(ended):
    parts = rank("101", began=800.0, ended=ended), rank("102", began=900.0), gave_up(101.0)
    assert blamed(*parts) == []
    assert any(
        one.startswith("NCCL's logs on node n1: other jobs")
        for one in reports(*parts)["102"].unobserved
    )


@pytest.mark.parametrize(("others", "read"), [((), ["node n1"]), (("102",), [])])
def test_a_job_is_verified_by_logs_that_are_its_own(others, read):
    parts = [rank(job, began=900.0) for job in ("101", *others)]
    settings = Settings(None, None, 0.0, "auto", frozenset())
    job = reports(*parts, gave_up(9.0))["101"]
    found = evidence(job, seen(*parts, gave_up(9.0)), settings, None, ())
    assert [one.source for one in found.nccl] == read


def test_a_job_in_a_pod_keeps_its_logs_beside_one_outside():
    own = 'pod_namespace="ml",pod_name="b-0"'
    parts = rank("101", began=900.0), rank("ml/b", began=900.0, pod="b-0"), gave_up(9.0, own)
    assert blamed(*parts) == ["ml/b"]
    assert not any("NCCL's logs on" in one for one in reports(*parts)["ml/b"].unobserved)


def test_a_job_is_alone_with_what_is_logged_after_the_earlier_one_ended():
    earlier, later = rank("101", began=900.0, ended=400.0), rank("102", began=300.0)
    assert blamed(earlier, later, gave_up(100.0)) == ["102"]


def test_what_was_counted_before_a_job_began_outside_of_pods_is_not_its_own():
    assert blamed(rank("102", began=300.0), gave_up(401.0)) == []
    assert blamed(rank("102", began=300.0), gave_up(299.0)) == ["102"]


def ras() -> str:
    return (
        f"{nccl_ras.RAS_RANKS.name} 2\n{nccl_ras.RAS_MISSING_RANKS.name} 1\n"
        f'{nccl_ras.RAS_LAG.name}{{op="AllReduce"}} 5\n{nccl_ras.RAS_LAGGING_RANK.name} 1\n'
        f"{nccl_ras.RAS_LAGGING_RANKS.name} 1\n{nccl_ras.RAS_LAST_QUERY.name} {NOW}\n"
    )


def hanging(job: str) -> str:
    """Return the series of two ranks that made no step for five minutes."""
    series = ""
    for number in (0, 1):
        labels = f'job_id="{job}",rank="{number}"'
        series += (
            f'{training.RANK_INFO.name}{{{labels},local_rank="{number}"}} 1\n'
            f"{training.RANK_ALIVE.name}{{{labels}}} 1\n"
            f"{training.LAST_STEP_TIMESTAMP.name}{{{labels}}} {NOW - 300}\n"
            f"{training.LAST_STEP_SECONDS.name}{{{labels}}} 1\n"
        )
    return series


@pytest.mark.parametrize("ended", [None, 400.0])
def test_ras_of_a_node_is_about_the_only_job_that_lives_there(ended):
    """Its numbers are of one of the jobs there, and ranks of several have the same numbers."""
    parts = hanging("101"), rank("102", began=900.0, ended=ended), ras()
    found = reports(*parts)
    (hang,) = [one for one in found["101"].incidents if one.stands]
    assert hang.where.ranks == ((1,) if ended else ())
    assert ("RAS" in hang.summary) is (ended is not None)
    unsure = [one for one in found["101"].unobserved if one.startswith("NCCL's RAS on node n1")]
    assert bool(unsure) is (ended is None)
    of_other = [one.kind for one in found["102"].observations]
    assert not {"ras_missing", "ras_lag"} & {*of_other}


@pytest.mark.parametrize(("others", "status"), [((), "broken"), (("102",), "not applicable")])
def test_ranks_that_ras_misses_break_only_a_job_that_is_alone(others, status):
    parts = ras(), *(rank(job, began=900.0) for job in ("101", *others))
    settings = Settings(None, None, 0.0, "auto", frozenset())
    found = evidence(reports(*parts)["101"], seen(*parts), settings, None, ())
    assert nccl_criteria.initialization(found).status == status


def test_what_a_job_logged_before_it_ended_stays_its_own_beside_the_next_job():
    first, second = rank("101", began=900.0, ended=100.0), rank("102", began=90.0)
    assert blamed(first, gave_up(105.0)) == ["101"]
    assert blamed(first, second, gave_up(105.0)) == ["101"]
    assert blamed(first, second, gave_up(20.0)) == ["102"]


def socket_fallback() -> str:
    return f'{nccl_log.NCCL_SOCKET_FALLBACK.name}{{{OUTSIDE},reason="plugin_missing"}} 1\n'


@pytest.mark.parametrize("noted", ["", f" {NOW - 295}\n"], ids=["never", "late"])
def test_an_earlier_job_takes_no_part_if_its_end_was_noted_late_or_never(noted):
    labels = 'job_id="101",rank="0"'
    earlier = f"{training.RANK_INFO.name}{{{labels}}} 1\n{training.RANK_ALIVE.name}{{{labels}}} 0\n"
    if noted:
        earlier += f"{training.RANK_ENDED.name}{{{labels}}}{noted}"
    assert blamed(earlier, rank("102", began=300.0), socket_fallback()) == ["102"]
    assert blamed(rank("102", began=300.0), rank("103", began=200.0), socket_fallback()) == []


def test_ranks_that_newer_pages_do_not_show_leave_ras_to_the_job_that_they_show():
    texts = {NOW - 200.0: rank("102", began=900.0), NOW: hanging("101") + ras()}
    pages = [
        Page("n1", at, f"{agent.SNAPSHOT_TIMESTAMP.name} {at}\n{text}")
        for at, text in texts.items()
    ]
    evidence = JobEvidence(from_pages(pages, job_reports.READS))
    found = {one.job_id: one for one in job_reports.reports(NOBODY, evidence, NOW)}
    (hang,) = [one for one in found["101"].incidents if one.stands]
    assert "RAS" in hang.summary
