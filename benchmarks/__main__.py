"""`make bench`: runs every comparison and reports ratios of interleaved measurements.

`python -m benchmarks NAME...` runs some of them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.processes import end_on_terminate


def _module(name: str) -> Any:
    """Import a benchmark when it is run: what others compare with need not be installed."""
    return importlib.import_module(f"benchmarks.{name}")


def _report(name: str) -> str:
    module = _module(name)
    return str(module.report(module.measure()))


def _hangs() -> str:
    module = _module("hangs")
    return str(module.report([*module.measure(), *module.measure_healthy()]))


def _dashboards(size: str) -> str:
    module = _module("dashboard_cost")
    fleet = getattr(module, size)
    return str(module.report(fleet, module.measure(fleet)))


def _streaming(size: str, *, secured: bool = False) -> str:
    module = _module("streaming")
    return str(module.report(module.measure(getattr(module, size), secured=secured)))


def _soak(length: str) -> str:
    module = _module("chaos.soak")
    return str(module.report(module.measure(getattr(module, length))))


BENCHMARKS: Mapping[str, Callable[[], str]] = {
    "table": partial(_report, "comparison"),
    "probe": partial(_report, "probe_cost"),
    "fsdp": partial(_report, "fsdp_cost"),
    "flight": partial(_report, "flight_cost"),
    "agent": partial(_report, "agent_cost"),
    "agent-memory": partial(_report, "agent_memory"),
    "agent-growth": partial(_report, "agent_growth"),
    "gpu": partial(_report, "gpu_cost"),
    "gpu-check": partial(_report, "gpu_check"),
    "gpu-proof": partial(_report, "gpu_proof.run"),
    "scrape": partial(_report, "scrape_cost"),
    "rdma": partial(_report, "rdma_cost"),
    "kernel": partial(_report, "kernel_log_cost"),
    "nccl": partial(_report, "nccl_log_cost"),
    "fabric-budget": partial(_report, "fabric_budget"),
    "fabric-check": partial(_report, "fabric_links"),
    "checkpoints": partial(_report, "checkpoint_runs.tried"),
    "hangs": _hangs,
    "goodput": partial(_report, "goodput.run"),
    "hang-notice": partial(_report, "hang_notice"),
    "hang-look": partial(_report, "hang_look_cost"),
    "capture": partial(_report, "capture_cost"),
    "stragglers": partial(_report, "straggler_speed"),
    "fleet": partial(_report, "fleet_cost"),
    "watch": partial(_report, "watch_cost"),
    "polls": partial(_report, "poll_cost"),
    "streaming": partial(_streaming, "SHORT"),
    "streaming-tls": partial(_streaming, "SHORT", secured=True),
    "rolling-restart": partial(_report, "rolling_restart"),
    "streaming-2048": partial(_streaming, "FULL"),
    "cluster-jobs": partial(_report, "cluster_jobs_memory"),
    "archive": partial(_report, "archive"),
    "report": partial(_report, "report_cost"),
    "rules": partial(_report, "rule_cost"),
    "dashboards": partial(_dashboards, "MIDDLE"),
    "dashboards-16384": partial(_dashboards, "LARGEST"),
    "prometheus": partial(_report, "prometheus_cost"),
    "hostile": partial(_report, "hostile.run"),
    "memory": partial(_report, "trace_memory"),
    "mlflow": partial(_report, "mlflow_runs"),
    "chaos": partial(_report, "chaos.run"),
    "soak": partial(_soak, "SHORT"),
    "soak-60m": partial(_soak, "FULL"),
}
"""What can be measured, by name."""

BY_NAME_ALONE = ("chaos", "soak-60m")
"""Benchmarks that compare nothing, and take a quarter of an hour and an hour."""


def main(arguments: Sequence[str]) -> int:
    """Run the named benchmarks, by default all but those of `BY_NAME_ALONE`; 1 if one fails."""
    known = ", ".join(BENCHMARKS)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures costs and accuracy: the named benchmarks, by default all but\n"
        f"{' and '.join(BY_NAME_ALONE)}, which compare nothing and take long.",
        epilog=textwrap.fill(f"Benchmarks: {known}.", break_on_hyphens=False),
    )
    parser.add_argument("name", nargs="*", help="of a benchmark")
    names: Sequence[str] = parser.parse_args(arguments).name
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown {', '.join(unknown)}; there are {known}")
    end_on_terminate()
    for name in names or [name for name in BENCHMARKS if name not in BY_NAME_ALONE]:
        try:
            measured = BENCHMARKS[name]()
        except RuntimeError as error:
            sys.stderr.write(f"python -m benchmarks {name}: {error}\n")
            return 1
        sys.stdout.write(f"== {name}\n{measured}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
