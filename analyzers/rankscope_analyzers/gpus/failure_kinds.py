"""Kinds of failures that are counted per 1,000 GPU-hours, and what large clusters published. Pure.

Llama 3: table 5 of "The Llama 3 Herd of Models" (arXiv:2407.21783), 419 unexpected interruptions of
a 405-billion-parameter model's pre-training on 16,384 H100s in 54 days. RSC-1 and RSC-2: clusters
of 16,000 and 8,000 A100s in nodes of eight, 6.50 and 2.34 failures per 1,000 node-days ("Revisiting
Reliability in Large-Scale Machine Learning Research Clusters", arXiv:2410.21680).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.kernel.vocabulary import Cause
from rankscope_agent.contract.metrics import job_status, kernel_log
from rankscope_agent.contract.model import Metric

THOUSAND = 1000.0
PUBLISHED_GPU_HOURS = 16_384 * 54 * 24
PUBLISHED = "Llama 3, 16,384 H100, 54 days (arXiv:2407.21783, table 5)"

NODE_DAY_GPU_HOURS = 8 * 24
OTHER_CLUSTERS: Mapping[str, float] = {
    "RSC-1, 16,000 A100 (arXiv:2410.21680)": 6.50 / NODE_DAY_GPU_HOURS,
    "RSC-2, 8,000 A100 (arXiv:2410.21680)": 2.34 / NODE_DAY_GPU_HOURS,
}
"""All failures per 1,000 GPU-hours that operators of other clusters published."""

ENDS_WORK = frozenset(("error", "fatal"))
"""Severities of GPU errors that interrupt a job."""


@dataclass(frozen=True, slots=True)
class GpuKind:
    """A kind of failure that GPUs report.

    Args:
        name: as people call it.
        published: how many interruptions of Llama 3 were of this kind; None if the paper does not
            separate them from others.
        causes: of kernel events.
    """

    name: str
    published: int | None
    causes: frozenset[Cause]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A kind of failure of a node or of its pods, which one counter counts.

    Args:
        name, published: as in `GpuKind`.
        counter: of the agent.
        label: that selects some of its series, empty for all.
        values: of this label in those.
        subject: the label of what fails; simultaneous events with one value are one failure.
    """

    name: str
    published: int | None
    counter: Metric
    label: str = ""
    values: frozenset[str] = frozenset()
    subject: str = "node"


GPU_KINDS: Sequence[GpuKind] = (
    GpuKind(
        "all unexpected interruptions",
        419,
        frozenset(("pcie", "gpu_hardware", "nvlink_fabric", "gpu_memory", "driver", "app")),
    ),
    GpuKind("faulty GPU", 148, frozenset(("pcie", "gpu_hardware", "nvlink_fabric"))),
    GpuKind("GPU lost", None, frozenset(("pcie",))),
    GpuKind("GPU hardware", None, frozenset(("gpu_hardware",))),
    GpuKind("NVLink", None, frozenset(("nvlink_fabric",))),
    GpuKind("GPU memory (HBM3 and SRAM)", 72 + 19, frozenset(("gpu_memory",))),
    GpuKind("GPU system processor", 17, frozenset(("driver",))),
    GpuKind("program fault on a GPU", None, frozenset(("app",))),
)
"""The paper's first line includes causes that no GPU reports (network, host, storage, maintenance),
so what is seen here is a part of it. A faulty GPU is one of the three kinds that follow it."""

NODE_KINDS: Sequence[NodeKind] = (
    NodeKind("network adapter", 7, kernel_log.NIC_TIMEOUTS),
    NodeKind("out of memory on the host", None, kernel_log.KERNEL_OOM_KILLS),
    NodeKind(
        "kernel crash or sudden reboot",
        None,
        kernel_log.REBOOTS,
        "reason",
        frozenset(("crashed", "unexpected")),
    ),
    NodeKind("disk", 3, kernel_log.DISK_ERRORS),
    NodeKind("preemption", None, job_status.JOB_PREEMPTIONS, subject="job_id"),
)

KINDS: Sequence[GpuKind | NodeKind] = (*GPU_KINDS, *NODE_KINDS)


def published_rate(count: int | None) -> float | None:
    """Return Llama 3's interruptions of a kind per 1,000 GPU-hours, None for None."""
    return None if count is None else count / PUBLISHED_GPU_HOURS * THOUSAND
