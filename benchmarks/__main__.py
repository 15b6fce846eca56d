"""`make bench`: runs every comparison and reports ratios of interleaved measurements.

`python -m benchmarks NAME...` runs some of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks import (
    agent_cost,
    agent_memory,
    capture_cost,
    cluster_jobs_memory,
    dashboard_cost,
    fabric_links,
    fleet_cost,
    flight_cost,
    fsdp_cost,
    gpu_check,
    gpu_cost,
    hangs,
    kernel_log_cost,
    nccl_log_cost,
    probe_cost,
    prometheus_cost,
    rdma_cost,
    report_cost,
    rule_cost,
    scrape_cost,
    straggler_speed,
    trace_memory,
    watch_cost,
)
from benchmarks.gpu_proof import run as gpu_proof
from benchmarks.hostile import run as hostile
from benchmarks.processes import end_on_terminate

BENCHMARKS: Mapping[str, Callable[[], str]] = {
    "probe": lambda: probe_cost.report(probe_cost.measure()),
    "fsdp": lambda: fsdp_cost.report(fsdp_cost.measure()),
    "flight": lambda: flight_cost.report(flight_cost.measure()),
    "agent": lambda: agent_cost.report(agent_cost.measure()),
    "agent-memory": lambda: agent_memory.report(agent_memory.measure()),
    "gpu": lambda: gpu_cost.report(gpu_cost.measure()),
    "gpu-check": lambda: gpu_check.report(gpu_check.measure()),
    "gpu-proof": lambda: gpu_proof.report(gpu_proof.measure()),
    "scrape": lambda: scrape_cost.report(scrape_cost.measure()),
    "rdma": lambda: rdma_cost.report(rdma_cost.measure()),
    "kernel": lambda: kernel_log_cost.report(kernel_log_cost.measure()),
    "nccl": lambda: nccl_log_cost.report(nccl_log_cost.measure()),
    "fabric-check": lambda: fabric_links.report(fabric_links.measure()),
    "hangs": lambda: hangs.report([*hangs.measure(), *hangs.measure_healthy()]),
    "capture": lambda: capture_cost.report(capture_cost.measure()),
    "stragglers": lambda: straggler_speed.report(straggler_speed.measure()),
    "fleet": lambda: fleet_cost.report(fleet_cost.measure()),
    "watch": lambda: watch_cost.report(watch_cost.measure()),
    "cluster-jobs": lambda: cluster_jobs_memory.report(cluster_jobs_memory.measure()),
    "report": lambda: report_cost.report(report_cost.measure()),
    "rules": lambda: rule_cost.report(rule_cost.measure()),
    "dashboards": lambda: _dashboards(dashboard_cost.MIDDLE),
    "dashboards-16384": lambda: _dashboards(dashboard_cost.LARGEST),
    "prometheus": lambda: prometheus_cost.report(prometheus_cost.measure()),
    "hostile": lambda: hostile.report(hostile.measure()),
    "memory": lambda: trace_memory.report(trace_memory.measure()),
}
"""What can be measured, by name."""


def _dashboards(size: dashboard_cost.Fleet) -> str:
    return dashboard_cost.report(size, dashboard_cost.measure(size))


def main(names: Sequence[str]) -> int:
    """Run the named benchmarks, all of them by default."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.stderr.write(f"unknown benchmarks {unknown}, have {list(BENCHMARKS)}\n")
        return 1
    end_on_terminate()
    for name in names or BENCHMARKS:
        sys.stdout.write(f"== {name}\n{BENCHMARKS[name]()}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
