"""GPU failure rates per 1,000 GPU-hours, compared with a published training run. Pure.

The published counts are those of table 5 of "The Llama 3 Herd of Models" (arXiv:2407.21783): 419
unexpected interruptions of a 405-billion-parameter model's pre-training on 16,384 H100s in 54 days.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.kernel.vocabulary import Cause
from rankscope_analyzers.gpus.xid_incidents import XidIncident
from rankscope_analyzers.numeric.poisson import interval

THOUSAND = 1000.0
PUBLISHED_GPU_HOURS = 16_384 * 54 * 24
PUBLISHED = "Llama 3, 16,384 H100, 54 days (arXiv:2407.21783, table 5)"

ENDS_WORK = frozenset(("error", "fatal"))
"""Severities from which on an incident interrupts its job."""


@dataclass(frozen=True, slots=True)
class RateKind:
    """One line of the comparison: what the paper counted, and which causes are the same here."""

    name: str
    published: int
    causes: frozenset[Cause]


KINDS: Sequence[RateKind] = (
    RateKind(
        "all unexpected interruptions",
        419,
        frozenset(("pcie", "gpu_hardware", "nvlink_fabric", "gpu_memory", "driver", "app")),
    ),
    RateKind("faulty GPU", 148, frozenset(("pcie", "gpu_hardware", "nvlink_fabric"))),
    RateKind("GPU memory (HBM3 and SRAM)", 72 + 19, frozenset(("gpu_memory",))),
    RateKind("GPU system processor", 17, frozenset(("driver",))),
)
"""The paper's first line has causes that no GPU reports (network, host, storage, maintenance): what
is seen here is a part of it."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Interruptions of one kind.

    Args:
        per_thousand_gpu_hours: None where the GPU-hours are not known.
        low_per_thousand_gpu_hours: the least rate that goes with the count, at 95 % confidence.
        high_per_thousand_gpu_hours: the largest one.
        published_per_thousand_gpu_hours: the paper's count over its GPU-hours.
        expected: how many the paper's rate would have brought in this time, None likewise.
    """

    name: str
    count: int
    per_thousand_gpu_hours: float | None
    low_per_thousand_gpu_hours: float | None
    high_per_thousand_gpu_hours: float | None
    published_per_thousand_gpu_hours: float
    expected: float | None


def rates(findings: Iterable[XidIncident], gpu_hours: float | None) -> tuple[Rate, ...]:
    """Return interruptions per 1,000 GPU-hours of each kind that the paper counted, too."""
    known = tuple(findings)
    return tuple(_rate(kind, known, gpu_hours) for kind in KINDS)


def _rate(kind: RateKind, findings: Sequence[XidIncident], gpu_hours: float | None) -> Rate:
    count = sum(one.cause in kind.causes and one.fatality in ENDS_WORK for one in findings)
    published = kind.published / PUBLISHED_GPU_HOURS
    low, high = interval(count)
    rate, least, most = (
        number / gpu_hours * THOUSAND if gpu_hours else None for number in (count, low, high)
    )
    return Rate(
        name=kind.name,
        count=count,
        per_thousand_gpu_hours=rate,
        low_per_thousand_gpu_hours=least,
        high_per_thousand_gpu_hours=most,
        published_per_thousand_gpu_hours=published * THOUSAND,
        expected=published * gpu_hours if gpu_hours else None,
    )
