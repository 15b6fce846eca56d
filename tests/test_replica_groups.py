"""Jobs of TorchFT's replica groups: ranks over all groups, and what a lost group is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from collected_page import Clock, Page, collector
from probe_jobs.nurseries import Nursery
from probe_jobs.running import read_rings
from rankscope_agent.contract.metrics import training
from rankscope_agent.sources.pods.processes import process_identity
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page as ReadPage
from rankscope_analyzers.intake.page_history import PageHistory
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from ring_writer import NS, RingWriter
from started_ranks import page_text

FAILED_POD = (
    'rankscope_job_last_failure_timestamp_seconds{job_id="team/job",reason="Error",detail="one"} '
)


GROUP = {"REPLICA_GROUP_ID": "1", "NUM_REPLICA_GROUPS": "3"}


def test_ranks_of_a_real_job_are_numbered_over_all_replica_groups(
    nursery: Nursery, tmp_path: Path
) -> None:
    outcomes = nursery.run(tmp_path, "starting.py", ranks=2, **GROUP)
    assert [one.code for one in outcomes] == [0, 0]
    rings = read_rings(tmp_path)
    assert [(ring.rank, ring.world_size, ring.local_rank) for ring in rings] == [
        (2, 6, 0),
        (3, 6, 1),
    ]
    page = Page(collector(tmp_path))
    (labels,) = page.labels(SIZE)
    assert page.value(SIZE, *labels) == 2
    for rank in (0, 1):
        environ = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), **GROUP}
        found = process_identity(environ)
        assert found is not None
        assert (found.rank, found.world_size) == (rings[rank].rank, 6), "as its probe says"


SIZE = training.JOB_REPLICA_GROUP_RANKS


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"REPLICA_GROUP_ID": "1"},
        {"REPLICA_GROUP_ID": "2", "NUM_REPLICA_GROUPS": "2"},
        {"REPLICA_GROUP_ID": "x", "NUM_REPLICA_GROUPS": "2"},
        {"REPLICA_GROUP_ID": "-1", "NUM_REPLICA_GROUPS": "2"},
    ],
)
def test_a_process_that_names_no_group_of_several_is_numbered_as_ever(odd):
    found = process_identity({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", **odd})
    assert found is not None
    assert (found.rank, found.world_size) == (1, 2)


class Job:
    """Four ranks in two replica groups on one node, which step every 0.1 s until told otherwise."""

    def __init__(self, folder: Path, groups: int = 2) -> None:
        self.clock = Clock()
        self.rings = [
            RingWriter(folder, f"{rank}.ring", rank=rank, pid=100 + rank, replica_groups=groups)
            for rank in range(4)
        ]
        self.read = collector(folder, self.clock)
        self.history = PageHistory(job_reports.READS, polls=9)
        self.more = ""

    def passes(self, seconds: float, *stepping: int) -> None:
        """Let time pass, and some ranks end a step at its end."""
        self.clock.now += seconds
        for rank in stepping:
            start = round((self.clock.now - 0.2) * NS)
            self.rings[rank].step(start_unix_ns=start)
        text = page_text(self.read, "gpu-01", self.clock.now) + self.more
        self.history.add([ReadPage("gpu-01", self.clock.now, text)])

    def report(self) -> JobReport:
        timing, evidence = TimingResults((), {}, ()), JobEvidence(self.history.observed())
        (report,) = job_reports.reports(timing, evidence, self.clock.now)
        return report


def kinds(report: JobReport) -> list[tuple[str, tuple[int, ...], str]]:
    return [(one.cause.kind, one.where.ranks, one.cause.severity) for one in report.incidents]


def test_a_job_of_which_one_group_recovers_is_degraded_and_neither_failed_nor_hung(tmp_path):
    job = Job(tmp_path)
    for _ in range(3):
        job.passes(30, 0, 1, 2, 3)
    assert job.report().incidents == ()
    job.rings[3].end()
    job.more = f"{FAILED_POD}{job.clock.now}\n"
    for _ in range(5):
        job.passes(30, 0, 1)
    assert kinds(job.report()) == [("replica_group_lost", (2, 3), "ticket")]
    (incident,) = job.report().incidents
    assert "train on: the job is degraded" in incident.summary
    assert [one.kind for one in incident.findings] == ["pod_failed"]


def test_a_job_whose_other_group_stands_too_has_lost_a_rank(tmp_path):
    job = Job(tmp_path)
    job.passes(30, 0, 1, 2, 3)
    job.rings[3].end()
    for _ in range(10):
        job.passes(30)
    assert ("missing_rank", (3,)) in [found[:2] for found in kinds(job.report())]


def test_a_job_without_groups_has_lost_a_rank(tmp_path):
    job = Job(tmp_path, groups=1)
    job.passes(30, 0, 1, 2, 3)
    job.rings[3].end()
    for _ in range(3):
        job.passes(30, 0, 1, 2)
    assert [found[:2] for found in kinds(job.report())] == [("missing_rank", (3,))]


def test_a_group_that_is_back_is_no_incident_any_more(tmp_path):
    job = Job(tmp_path)
    job.passes(30, 0, 1, 2, 3)
    for rank in (2, 3):
        job.rings[rank].end()
    job.passes(30, 0, 1)
    assert [found[0] for found in kinds(job.report())] == ["replica_group_lost"]
    for rank in (2, 3):
        created = round(job.clock.now * NS)
        job.rings[rank] = RingWriter(
            tmp_path, f"again{rank}.ring", rank=rank, pid=200 + rank, replica_groups=2,
            created_unix_ns=created, attempt=1,
        )  # fmt: skip
    job.passes(30, 0, 1, 2, 3)
    assert job.report().incidents == ()
