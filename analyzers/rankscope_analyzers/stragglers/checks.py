"""The checks of a window of steps, in the order in which a step spends its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.stragglers import (
    cpu_starvation,
    global_slowdown,
    host_stalls,
    partition_imbalance,
    sample_imbalance,
    slow_input,
    slow_kernels,
    slow_loaders,
    slow_stage,
    slow_transfer,
)
from rankscope_analyzers.stragglers.view import Candidate, Part, View


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the newest steps.

    Args:
        check: returns a candidate if it finds the fault.
        kind: class of fault that it can find.
        needs: parts of the step that must be measured.
    """

    check: Callable[[View], Candidate | None]
    kind: FaultClass
    needs: frozenset[Part]


CHECKS: Sequence[Check] = (
    Check(cpu_starvation.starved_ranks, "host_transient", frozenset({"cpu_wait"})),
    Check(slow_input.slow_ranks, "data_loader", frozenset({"data"})),
    Check(slow_input.slow_only_loader, "data_loader", frozenset({"data"})),
    Check(slow_input.slow_for_all, "storage_checkpoint", frozenset({"data"})),
    Check(slow_loaders.slow_for_all, "storage_checkpoint", frozenset({"data"})),
    Check(sample_imbalance.uneven_samples, "partition_imbalance", frozenset({"compute"})),
    Check(slow_kernels.slow_ranks, "gpu_compute", frozenset({"compute"})),
    Check(slow_kernels.slow_replicas, "gpu_compute", frozenset({"compute"})),
    Check(slow_stage.slow_stage, "gpu_compute", frozenset({"compute"})),
    Check(partition_imbalance.imbalance, "partition_imbalance", frozenset({"compute"})),
    Check(host_stalls.stalled_ranks, "host_transient", frozenset({"compute", "sync"})),
    Check(slow_transfer.slow_exchange, "network_link", frozenset({"compute", "sync"})),
    Check(global_slowdown.slow_compute, "global_slowdown", frozenset({"compute"})),
    Check(global_slowdown.slow_steps, "global_slowdown", frozenset()),
)
"""In the order in which a step spends its time, after the check of what delays all of it."""
