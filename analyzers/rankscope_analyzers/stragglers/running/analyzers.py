"""The analyzers, in the order in which a step spends its time, behind what delays all of it."""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_analyzers.findings.finding import Analyzer
from rankscope_analyzers.stragglers.running import (
    cpu_wait,
    data_loader,
    data_skew,
    global_slowdown,
    gpu_compute,
    network_link,
)

ANALYZERS: Mapping[str, Analyzer] = {
    "cpu_wait": cpu_wait.analyze,
    "data_loader": data_loader.analyze,
    "data_skew": data_skew.analyze,
    "gpu_compute": gpu_compute.analyze,
    "network_link": network_link.analyze,
    "global_slowdown": global_slowdown.analyze,
}
