"""A rank whose node has no GPU that is known: its local rank is named, and what CPUs can suffer."""

from __future__ import annotations

import pytest

from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.fusion.job_reports import READS, JobEvidence
from rankscope_analyzers.fusion.known_gpus import without_gpus
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.reports import job_json
from rankscope_analyzers.steps.job_records import JobRecords, Read
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from simulated_jobs import Fault, Job, records

NODE = "node-00001"
RANK = f'rankscope_rank_info{{job_id="job",rank="5",node="{NODE}",local_rank="1",uuid="%s"}} 1\n'
OF_GPU = 'rankscope_gpu_info{gpu="1",uuid="GPU-b",pci="b"} 1\n'


def reported(text, timing="wall", **columns):
    """Return the report on a job whose rank 5, of its second node, is slow."""
    rows = records(Job(ranks_per_node=4, faults=(Fault("compute", (5,), 0.7, first_step=60),)))
    rows = rows.assign(timing_source=timing, **columns)
    job = JobRecords("job", rows, None, (), live=True)
    texts = {"node-00000": "rankscope_boot_timestamp_seconds 1759000000\n", NODE: text}
    pages = [Page(node, 1_760_000_300.0, one) for node, one in texts.items()] if text else []
    evidence = JobEvidence(from_pages(pages, READS))
    found = gather._with_corrected_clocks(Read((job,)), evidence, None)
    reports = job_reports.reports(diagnose_each(found.jobs), found.evidence, 1_760_000_300.0)
    return next(report for report in reports if report.job_id == "job")


def test_a_rank_of_a_node_without_gpus_has_a_local_rank_and_advice_for_cpus():
    report = reported(RANK % "")
    (incident,) = report.incidents
    assert incident.summary.startswith(f"rank 5 (node {NODE}, local rank 1) computes ")
    assert incident.action.startswith("Compare load, clocks and CPU limits of that node ")
    assert "GPU" not in incident.action
    found = job_json.as_object(report)
    assert found["incidents"][0]["gpus"] == []
    assert {place["gpu"] for place in found["places"]} == {None}


def test_a_spawned_rank_without_a_local_rank_has_advice_for_cpus_too():
    (incident,) = reported(RANK % "", gpu=-1).incidents
    assert incident.summary.startswith(f"rank 5 (node {NODE}) computes ")
    assert incident.action.startswith("Compare load, clocks and CPU limits of that node ")


@pytest.mark.parametrize(
    ("text", "timing"),
    [
        (RANK % "" + OF_GPU, "wall"),
        (RANK % "GPU-b", "wall"),
        (RANK % "", "kernel"),
        (RANK % "", "sampled"),
        ("", "wall"),
    ],
    ids=["seen", "held by the pod", "timed by kernels", "sampled", "nothing was read of the node"],
)
def test_a_rank_of_a_node_that_has_or_may_have_gpus_has_one(text, timing):
    (incident,) = reported(text, timing).incidents
    assert incident.summary.startswith(f"rank 5 (node {NODE}, GPU 1) computes ")
    assert "of that GPU" in incident.action


def test_one_node_without_gpus_does_not_take_those_of_others():
    pages = [Page("node-00000", 1.0, RANK % ""), Page(NODE, 1.0, OF_GPU)]
    job = JobRecords("job", records(Job(ranks_per_node=4)), None, (), live=True)
    found = without_gpus(job, from_pages(pages, READS))
    assert found.without_gpus == {"node-00000"}


HELD = "".join(f'rankscope_gpu_info{{gpu="{n}",uuid="GPU-{n}",pci="{n}"}} 1\n' for n in range(8))
OTHER = f'rankscope_rank_info{{job_id="o",rank="0",node="{NODE}",local_rank="%d",uuid=""}} 1\n'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (RANK % "GPU-6", ", GPU 6"),
        (RANK % "" + OTHER % 2, ", GPU 1"),
        (RANK % "" + OTHER % 1, ""),
    ],
    ids=["named by the agent", "by its local rank", "another job may use it"],
)
def test_a_slow_rank_is_on_the_gpu_that_pages_show_whatever_its_local_rank(text, place):
    report = reported(text + HELD)
    (incident,) = report.incidents
    assert incident.summary.startswith(f"rank 5 (node {NODE}{place}) computes ")
    assert "of that GPU" in incident.action
    assert place.removeprefix(", GPU ") == report.locations[5].gpu
