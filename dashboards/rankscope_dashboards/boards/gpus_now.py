"""The executive dashboard's panels on the existing GPUs: in use, spare, broken, idle."""

from __future__ import annotations

from typing import Any

from rankscope_agent.contract.metrics import gpus, pods, training
from rankscope_dashboards.expressions.promql import worst
from rankscope_dashboards.expressions.queries import CLUSTER, FEW, GPU_KEY, gpus_with, of
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import colored
from rankscope_dashboards.parts.panels import BarGauge, Panel, Stat, TimeSeries, now, targets
from rankscope_dashboards.parts.thresholds import ANY_IS_BAD, ANY_IS_ODD

NO_KUBELET = "no kubelet reports GPUs", "no kubelet"


def panels(runbooks: str) -> list[Panel]:
    """Return the panels.

    Args:
        runbooks: address at which docs/runbooks is served.
    """
    return [*_gpus(runbooks), *_allocated(runbooks), *_kinds()]


def _held() -> str:
    """Return the GPUs that containers hold, by node and uuid.

    A time-sliced one is held by several, each with `::` and a number after the uuid.
    """
    holds = of(pods.GPU_ALLOCATION_INFO, CLUSTER)
    whole_gpu = f'label_replace({holds}, "held", "$1", "uuid", "(.+?)(?:::.*)?")'
    return f'label_replace({worst(whole_gpu, "node", "held")}, "uuid", "$1", "held", "(.+)")'


def _gpus(runbooks: str) -> list[Panel]:
    every = worst(of(gpus.GPU_INFO, CLUSTER), *GPU_KEY)
    bad = gpus_with(CLUSTER, gpus.GPU_LOST, gpus.GPU_UNRESPONSIVE, gpus.GPU_REMAP_FAILURE)
    busy = gpus_with(CLUSTER, gpus.GPU_UTILIZATION)
    held = _held()
    of_ranks = of(training.RANK_INFO, CLUSTER, 'uuid!=""')
    idle = f"({every} unless on (cluster, node, gpu, uuid) ({bad} or {busy}))"
    spare = f"({idle} unless on (cluster, node, uuid) ({held} or {of_ranks}))"
    return [
        _count("GPUs", "GPUs that agents know of, including lost ones.", every),
        _count(
            "GPUs in use", "GPUs on which some kernel ran in the last second.", busy, among=every
        ),
        _count(
            "Healthy spare GPUs",
            "GPUs that respond, have no failed memory row, are idle and are held by no container"
            " or rank: the reserve for failed nodes.",
            spare,
            among=every,
        ),
        _count(
            "Broken GPUs",
            "GPUs that are lost, do not respond, or have a memory row that could not be replaced:"
            " they cost money but do no work.",
            bad,
            among=every,
            steps=ANY_IS_BAD,
            links=[links.runbook(runbooks, "RankscopeGpuLost")],
        ),
    ]


def _count(
    title: str,
    description: str,
    counted: str,
    among: str = "",
    missing: tuple[str, str] = (shared.NO_GPUS, "no GPUs"),
    **settings: Any,
) -> Panel:
    """Return a panel with a number of GPUs.

    Args:
        title: of the panel.
        description: likewise.
        counted: series of the GPUs that count.
        among: series of all GPUs; if there are some, the count is 0 rather than missing.
        missing: the text without data, in full and in short.
        settings: of the panel.
    """
    query = f"count({counted})" + (f" or 0 * count({among})" if among else "")
    words, briefly = missing
    return Stat(
        title=title,
        description=description,
        targets=now((query, "")),
        missing=words,
        briefly=briefly,
        **settings,
    )


def _allocated(runbooks: str) -> list[Panel]:
    held = _held()
    quiet = worst(f"max_over_time({of(gpus.GPU_UTILIZATION, CLUSTER)}[1h])", "node", "uuid")
    before = worst(f"{of(gpus.GPU_UTILIZATION, CLUSTER)} offset 1h", "node", "uuid")
    unused = f"({quiet} == 0) and on (cluster, node, uuid) {before}"
    unused = f"({held} and on (cluster, node, uuid) ({unused}))"
    return [
        _count(
            "GPUs allocated in Kubernetes",
            "GPUs held by containers, as reported by the kubelets; a container may hold a GPU"
            " without using it. A time-sliced GPU counts once, a MIG slice as one.",
            held,
            missing=NO_KUBELET,
            width=8,
        ),
        _count(
            "Allocated GPUs that are idle",
            "GPUs held by containers on which no kernel ran in the last hour: no one else can use"
            " them. GPUs that were not observed for all of it do not count.",
            unused,
            among=held,
            missing=NO_KUBELET,
            steps=ANY_IS_ODD,
            width=8,
            links=[links.runbook(runbooks, "RankscopeGpusIdle")],
        ),
    ]


def _kinds() -> list[Panel]:
    busy = worst(of(gpus.GPU_UTILIZATION, CLUSTER), "node", "uuid")
    model = worst(of(gpus.GPU_INFO, CLUSTER), "node", "gpu", "model")
    return [
        TimeSeries(
            title="Mean GPU utilisation",
            description="Share of time in which any kernel runs, over all GPUs. GPUs that"
            " wait for a slow rank count as busy, so read this together with the"
            " lost time.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            targets=targets((f"avg({busy})", "utilisation")),
            overrides=colored(["utilisation"]),
            missing=shared.NO_GPUS,
        ),
        BarGauge(
            title="GPUs by model",
            description="How many GPUs of each model agents know of.",
            minimum=0,
            decimals=0,
            targets=now((f"topk({FEW}, count by (model) ({model}))", "{{model}}")),
            missing=shared.NO_GPUS,
        ),
    ]
