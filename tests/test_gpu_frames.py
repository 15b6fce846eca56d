"""What agents' pages say of GPUs, as a frame: columns, jobs, and simulated faults in it."""

from __future__ import annotations

import pytest

from gpu_nodes import Clock, library, read, session_of
from rankscope_agent.contract.metrics import gpus as gpu_metrics
from rankscope_agent.contract.model import Scrape, Snapshot
from rankscope_agent.serving.exposition import TEXT, render
from rankscope_analyzers.gpus.frames import GPU_COLUMNS, of_pages
from rankscope_analyzers.gpus.throttle import analyze
from rankscope_analyzers.intake.page_history import Page


def pages_of(text, node, seconds=10):
    clock = Clock()
    session = session_of(library(text, clock), clock)
    for _ in range(seconds):
        scrape = Scrape("nvml", True, 0.0, tuple(read(session).samples), "", None)
        snapshot = Snapshot(node, clock.now, (scrape,))
        yield Page(node, clock.now, render(snapshot, TEXT, None).decode())
        clock.now += 1


def test_pages_of_agents_become_a_frame_with_every_column():
    frame = of_pages(pages_of("h100x8", "gpu-07", 2))
    assert list(frame.columns) == list(GPU_COLUMNS)
    assert len(frame) == 16
    assert frame.drop(columns=["job_id"]).notna().all().all()
    assert set(frame["model"]) == {"NVIDIA H100 80GB HBM3"}


REASONS = ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake")


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize(
    ("metric", "suffix"),
    [(gpu_metrics.GPU_CLOCK_EVENT_SECONDS, "seconds"), (gpu_metrics.GPU_CLOCK_EVENT, "active")],
)
def test_each_reason_that_holds_a_clock_down_has_its_column(reason, metric, suffix):
    named = zip(metric.labels, ("0", "U", "p", reason), strict=True)
    labels = ",".join(f'{name}="{value}"' for name, value in named)
    frame = of_pages([Page("n", 1.0, f"{metric.name}{{{labels}}} 7\n")])
    assert frame[f"{reason}_{suffix}"].tolist() == [7.0]
    assert frame[[f"{r}_{suffix}" for r in REASONS]].notna().to_numpy().sum() == 1


def test_the_job_of_a_gpu_is_taken_from_its_allocation():
    (page, *_) = pages_of("h100x2", "n", 1)
    uuid = of_pages([page])["uuid"].iloc[1]
    info = f'rankscope_gpu_allocation_info{{gpu="1",job_id="team/job",uuid="{uuid}"}} 1.0\n'
    frame = of_pages([Page("n", 1.0, page.text + info)])
    assert list(frame["job_id"]) == ["", "team/job"]


def rank_info(job, rank, uuid=""):
    return f'rankscope_rank_info{{job_id="{job}",rank="{rank}",uuid="{uuid}"}} 1.0\n'


def test_the_job_of_a_gpu_that_nobody_gave_out_is_that_of_its_rank():
    (page, *_) = pages_of("h100x2", "n", 1)
    uuid = of_pages([page])["uuid"].iloc[0]
    frame = of_pages([Page("n", 1.0, page.text + rank_info("7841", 0, uuid))])
    assert list(frame["job_id"]) == ["7841", ""]


@pytest.mark.parametrize(
    ("ranks", "jobs"),
    [
        ([("7841", 0), ("7841", 1)], ["7841", "7841"]),
        ([("7841", 0)], ["", ""]),
        ([("7841", 0), ("7842", 0)], ["", ""]),
    ],
)
def test_a_node_with_a_rank_of_one_job_for_each_gpu_is_that_jobs(ranks, jobs):
    (page, *_) = pages_of("h100x2", "n", 1)
    text = page.text + "".join(rank_info(*rank) for rank in ranks)
    assert list(of_pages([Page("n", 1.0, text)])["job_id"]) == jobs


def test_a_shared_gpu_has_the_job_of_its_replica():
    (page, *_) = pages_of("h100x2", "n", 1)
    uuid = of_pages([page])["uuid"].iloc[1]
    info = f'rankscope_gpu_allocation_info{{job_id="team/job",uuid="{uuid}::3"}} 1.0\n'
    frame = of_pages([Page("n", 1.0, page.text + info)])
    assert list(frame["job_id"]) == ["", "team/job"]


@pytest.mark.parametrize(
    ("scenario", "kinds"),
    [
        ("healthy", set()),
        ("thermal", {"thermal_slowdown"}),
        ("power-cap", {"power_cap", "power_limit_differs"}),
        ("ecc-storm", set()),
        ("nvlink", set()),
        ("xid79", set()),
    ],
)
@pytest.mark.parametrize("model", ["h100x8", "l40sx4"])
def test_simulated_scenarios_are_judged_as_what_they_are(model, scenario, kinds):
    findings = analyze(of_pages(pages_of(f"{model}:{scenario}", "n")))
    assert {found.kind for found in findings} == kinds
    target = "3" if model == "l40sx4" else "5"
    assert {gpu for found in findings for gpu in found.where.gpus} == ({target} if kinds else set())
