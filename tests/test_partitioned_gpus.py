"""Ranks on parts of GPUs (MIG), whose UUIDs are not those of the GPUs that have faults."""

from __future__ import annotations

from rankscope_analyzers.findings.finding import Where
from rankscope_analyzers.findings.location import affected_ranks
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import READS, JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.stragglers.diagnosis import TimingResults

NOW = 1_760_000_300.0
MIG = "MIG-11111111-2222-3333-4444-555555555555"
GPUS = "".join(f'rankscope_gpu_info{{gpu="{n}",uuid="GPU-{n}",mig="enabled"}} 1\n' for n in (0, 1))
LOST = 'rankscope_gpu_lost{gpu="0",uuid="GPU-0"} 1\n'


def rank(number, uuid):
    key = f'job_id="ml/m",rank="{number}"'
    return f'rankscope_rank_info{{{key},local_rank="{number}",uuid="{uuid}"}} 1\n'


def reported(*texts):
    evidence = JobEvidence(from_pages([Page("n1", NOW, "".join((GPUS, LOST, *texts)))], READS))
    (report,) = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
    return report


def test_a_lost_gpu_may_be_the_one_whose_part_a_rank_uses():
    report = reported(rank(0, MIG), rank(1, "GPU-1"))
    (incident,) = report.incidents
    assert (incident.cause.kind, incident.where.ranks) == ("gpu_lost", (0,))
    assert incident.summary.startswith("GPU 0 of node n1")
    unknown = "which GPU belongs to rank 0: a MIG device does not say which GPU it is a part of"
    assert unknown in report.unobserved
    assert report.locations[0].uuid == MIG


def test_a_lost_gpu_is_that_of_the_ranks_on_its_parts():
    part = f'rankscope_gpu_instance_info{{gpu="%d",uuid="GPU-%d",mig_uuid="{MIG}"}} 1\n'
    assert reported(rank(0, MIG), part % (1, 1)).incidents == ()
    report = reported(
        rank(0, MIG), rank(1, "MIG-0"), part % (0, 0), part.replace(MIG, "MIG-0") % (1, 1)
    )
    (incident,) = report.incidents
    assert (incident.where.ranks, incident.where.uuids) == ((0,), ("GPU-0",))
    assert not any("which GPU belongs" in sentence for sentence in report.unobserved)
    assert affected_ranks(Where(("n1",), uuids=("GPU-0",)), report.locations) == {0}
    held = [(one.gpu, one.uuid, one.parent_uuid) for one in report.locations.values()]
    assert held == [("0", MIG, "GPU-0"), ("1", "MIG-0", "GPU-1")]


def test_a_lost_gpu_is_none_of_ranks_on_whole_gpus():
    assert reported(rank(0, "GPU-1")).incidents == ()
