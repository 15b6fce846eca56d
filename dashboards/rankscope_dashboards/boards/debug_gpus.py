"""Panels of the debug dashboard about the GPUs of the selected job's ranks."""

from __future__ import annotations

from rankscope_agent.contract.metrics import gpus
from rankscope_dashboards.boards import computing
from rankscope_dashboards.expressions.promql import GPU, by, worst
from rankscope_dashboards.expressions.queries import FEW, NODE, of, rate, whole, with_rank
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import numbered
from rankscope_dashboards.parts.panels import BAD, GOOD, WARN, Panel, TimeSeries, targets

HELD_DOWN = 'reason!~".*idle.*|.*setting.*"'
"""An idle GPU's clock is low, and limits are set on purpose: neither slows a job unexpectedly."""

FULL_MEMORY = ((None, GOOD), (0.9, WARN), (0.97, BAD))
"""Fraction of a GPU's memory: fragments of the allocator make the last few percent unusable."""


def panels(runbooks: str) -> list[Panel]:
    """Return panels about the GPUs that ranks run on."""
    return [*_gpu_clocks(runbooks), *_gpu_memory_and_heat(), *computing.of_job()]


def _gpu_clocks(runbooks: str) -> list[Panel]:
    clock = of(gpus.GPU_CLOCK, NODE, 'domain="sm"')
    held = of(gpus.GPU_CLOCK_EVENT_SECONDS, NODE, HELD_DOWN)
    longest = _few("topk", whole("rate", held) + " > 0", "reason")
    return [
        TimeSeries(
            title="SM clock",
            description=f"The {FEW} ranks with the lowest GPU clocks. In a job all GPUs should run"
            " at the same clock; one below the others holds all of them up.",
            unit="hertz",
            minimum=0,
            targets=targets(
                (_shown(clock, _few("bottomk", whole("min_over_time", clock))),
                 "rank {{rank}} {{node}} GPU {{gpu}}"),
            ),
            overrides=numbered("rank "),
            several=True,
            missing=shared.NO_GPUS,
            links=[links.runbook(runbooks, "RankscopeGpuClockLow")],
        ),
        TimeSeries(
            title="Clock reduced, by reason",
            description="Share of time in which the GPU's clock was reduced by heat, power limit or"
            f" hardware; the {FEW} ranks affected most.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            targets=targets(
                # A counter that is read a little late seems to grow by more than the elapsed time.
                (f"clamp_max({_shown(rate(held), longest, 'reason')}, 1)",
                 "rank {{rank}} {{reason}}"),
            ),
            overrides=numbered("rank "),
            several=True,
            steps=((None, GOOD), (0.05, WARN), (0.3, BAD)),
            missing="no clock was reduced, or there are no GPU series",
            links=[links.runbook(runbooks, "RankscopeGpuThermalSlowdown")],
        ),
    ]  # fmt: skip


def _gpu_memory_and_heat() -> list[Panel]:
    used, total = of(gpus.GPU_MEMORY_USED, NODE), of(gpus.GPU_MEMORY_TOTAL, NODE)
    hot = of(gpus.GPU_TEMPERATURE, NODE, 'sensor=~"core|gpu"')
    fullest = _few("topk", whole("max_over_time", used))
    key = "on (cluster, node, uuid)"
    size = worst(f"{whole('last_over_time', total)} and {key} {fullest}", "node", "uuid")
    capacity = f"{key} group_left () {size}"
    return [
        TimeSeries(
            title="GPU memory in use",
            description=f"Share of the GPU's memory in use by processes; the {FEW} fullest GPUs."
            " PyTorch's allocator keeps memory that it has allocated, so look at the growth.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            targets=targets(
                (f"{_shown(used, fullest)} / {capacity}",
                 "rank {{rank}} {{node}} GPU {{gpu}}"),
            ),
            overrides=numbered("rank "),
            several=True,
            steps=FULL_MEMORY,
            missing=shared.NO_GPUS,
        ),
        TimeSeries(
            title="GPU temperature",
            description=f"The {FEW} hottest GPUs of the job. Compare them with their peers: each"
            " GPU has its own limit.",
            unit="celsius",
            targets=targets(
                (_shown(hot, _few("topk", whole("max_over_time", hot))),
                 "rank {{rank}} {{node}} GPU {{gpu}}"),
            ),
            overrides=numbered("rank "),
            several=True,
            missing=shared.NO_GPUS,
        ),
    ]  # fmt: skip


def _few(choose: str, order: str, *more: str) -> str:
    """Return the few GPUs of the job that rank first by a value of the whole range, with ranks.

    It is the same at each point of a panel, so that Prometheus evaluates it once.
    """
    return f"{choose}({FEW}, {with_rank(worst(order, *GPU, *more))})"


def _shown(selector: str, few: str, *more: str) -> str:
    """Return series of a few GPUs with their ranks.

    All others are dropped before anything else is computed at each point: a job may have thousands.

    Args:
        selector: of what is shown.
        few: the selection of `_few`.
        more: labels in addition to those of the GPU.
    """
    keys = ", ".join(("cluster", "node", "uuid", *more))
    series = worst(f"{selector} and on ({keys}) {few}", *GPU, *more)
    ranks = f"group {by('node', 'uuid', 'rank')} ({few})"
    return f"{series} * on (cluster, node, uuid) group_left (rank) {ranks}"
