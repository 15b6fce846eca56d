"""Of two jobs that share nodes, which one a port that is down concerns."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.metrics import rdma, topology, training
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.stragglers.diagnosis import TimingResults

NOW = 1_800_000_000.0
NODES, JOBS = ("n1", "n2"), ("ml/a", "ml/b")


def page(node, ago, down, known):
    """Return the page of a node with one rank of each job, a port next to each GPU, and another.

    Args:
        node: its name.
        ago: its age.
        down: the port of n1 that is down.
        known: GPUs of which it is known which port is nearest.
    """
    lines = []
    for gpu, job in enumerate(JOBS):
        labels = f'job_id="{job}",rank="{NODES.index(node)}",uuid="GPU-{node}-{gpu}"'
        lines.append(f"{training.RANK_INFO.name}{{{labels}}} 1\n")
    for gpu in known:
        labels = f'uuid="GPU-{node}-{gpu}",device="mlx5_{gpu}",distance="PIX"'
        lines.append(f"{topology.GPU_NIC_INFO.name}{{{labels}}} 1\n")
    for port in range(3):
        state = 1 if (node, port) == ("n1", down) else 4
        lines.append(f'{rdma.PORT_STATE.name}{{device="mlx5_{port}",port="1"}} {state}\n')
    return Page(node, NOW - ago, "".join(lines))


@pytest.mark.parametrize(
    ("down", "known", "concerned"),
    [
        (0, (0, 1), {"ml/a"}),
        (1, (0, 1), {"ml/b"}),
        (2, (0, 1), {"ml/a", "ml/b"}),
        (1, (1,), {"ml/a", "ml/b"}),
    ],
    ids=["of the first", "of the second", "next to no GPU", "not known of the first"],
)
def test_a_port_next_to_other_jobs_gpus_concerns_only_them(down, known, concerned):
    pages = [page(node, ago, down, known) for ago in (60.0, 30.0, 0.0) for node in NODES]
    evidence = JobEvidence(from_pages(pages, job_reports.READS))
    reports = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
    assert {one.job_id for one in reports if one.incidents} == concerned
