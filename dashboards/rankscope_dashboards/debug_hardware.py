"""Panels of the debug view about NCCL, GPUs, networks and nodes of the chosen job."""

from __future__ import annotations

from rankscope_agent.metrics import (
    gpu,
    host,
    inspector,
    nccl,
    netdev,
    rdma,
    starvation,
    topology,
    training,
)
from rankscope_agent.model import Metric
from rankscope_dashboards import links, shared
from rankscope_dashboards.fields import colored, columns, numbered, override
from rankscope_dashboards.limits import ANY_IS_BAD, ANY_IS_ODD, BUSY_PORT
from rankscope_dashboards.panels import (
    BAD,
    GOOD,
    WARN,
    Panel,
    Stat,
    Table,
    TimeSeries,
    now,
    rows,
    targets,
)
from rankscope_dashboards.promql import GPU, by, worst
from rankscope_dashboards.queries import (
    FEW,
    JOB,
    MANY,
    NODE,
    growth,
    job_nodes,
    largest_rates,
    of,
    rate,
    whole,
    with_rank,
)
from rankscope_dashboards.recording_rules import QUANTILES

HELD_DOWN = 'reason!~".*idle.*|.*setting.*"'
"""An idle GPU's clock is low, and somebody set a limit: neither slows a job down unexpectedly."""

FULL_MEMORY = ((None, GOOD), (0.9, WARN), (0.97, BAD))
"""Of a GPU's memory: fragments of the allocator make the last few percent unusable."""

STALLED = ((None, GOOD), (0.1, WARN), (0.4, BAD))
"""Part of time in which some task of a node waited; loaders begin to suffer from a tenth on."""


PORT_KEYS = "cluster, node, device, port"
ERRORS = {"node": "node", "device": "device", "port": "port", "type": "type", "Value": "errors"}


def collectives(runbooks: str) -> list[Panel]:
    """Return panels about gradient sync, operations and NCCL's logs."""
    sync = f"sum by (le) ({rate(of(training.SYNC_TIME, JOB, part='_bucket'))})"
    seconds = job_nodes(rate(of(inspector.INSPECTOR_SECONDS, NODE)))
    count = job_nodes(rate(of(inspector.INSPECTOR_OPERATIONS, NODE)))
    lines = job_nodes(of(nccl.NCCL_CONNECTIONS, NODE))
    warnings = job_nodes(growth(of(nccl.NCCL_WARNINGS, NODE)))
    return [
        TimeSeries(
            title="Gradient sync per step",
            description="Half, 95 % and 99 % of steps waited less in collectives. It contains the"
            " waiting for slow ranks.",
            unit="s",
            minimum=0,
            targets=shared.quantiles(sync),
            overrides=colored(tuple(QUANTILES)),
            missing="not measured: on NCCL use its Inspector or a profile",
        ),
        TimeSeries(
            title="Duration of collectives by operation",
            description="Mean time of NCCL's operations on the job's nodes, from NCCL Inspector.",
            unit="s",
            minimum=0,
            targets=targets((f"sum by (op) ({seconds}) / (sum by (op) ({count}) > 0)", "{{op}}")),
            missing="NCCL Inspector is not on: set NCCL_PROFILER_PLUGIN in the job",
        ),
        Table(
            title="NCCL transports",
            description="Connections that NCCL printed on the job's nodes. Between nodes expect NET"
            " with GPUDirect RDMA (gdr), never sockets.",
            targets=rows(f"topk({MANY}, sum by (transport, gdr, scope) ({lines}))"),
            transformations=columns(
                {
                    "scope": "between",
                    "transport": "transport",
                    "gdr": "GPUDirect",
                    "Value": "connections",
                }
            ),
            missing=shared.NO_NCCL,
            links=[links.runbook(runbooks, "RankscopeSocketFallback")],
        ),
        Table(
            title="NCCL warnings",
            description="Warnings in the logs of the job's nodes in the time range, by code."
            " `rankscope explain nccl-log FILE` says what they mean.",
            targets=rows(f"topk({MANY}, sum {by('node', 'pod_name', 'code')} ({warnings}))"),
            transformations=columns(
                {"node": "node", "pod_name": "pod", "code": "code", "Value": "how often"}
            ),
            largest_first="how often",
            widths={"how often": 110},
            steps=ANY_IS_ODD,
            decimals=0,
            missing="no warning was logged, or there are no logs of NCCL",
            links=[links.runbook(runbooks, "RankscopeNcclIbErrors")],
        ),
    ]  # fmt: skip


def gpus(runbooks: str) -> list[Panel]:
    """Return panels about the GPUs that ranks run on."""
    return [*_gpu_clocks(runbooks), *_gpu_memory_and_heat()]


def _gpu_clocks(runbooks: str) -> list[Panel]:
    clock = of(gpu.GPU_CLOCK, NODE, 'domain="sm"')
    held = of(gpu.GPU_CLOCK_EVENT_SECONDS, NODE, HELD_DOWN)
    longest = _few("topk", whole("rate", held) + " > 0", "reason")
    return [
        TimeSeries(
            title="SM clock",
            description=f"The {FEW} ranks whose GPUs were slowest. In a job all should run at the"
            " same clock; one below the others holds all of them up.",
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
            title="Clock held down, by reason",
            description="Part of time in which the GPU's clock was held down: heat, power limit or"
            f" hardware; the {FEW} ranks with most of it, and none that had nothing of it.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            targets=targets(
                (_shown(rate(held), longest, "reason"),
                 "rank {{rank}} {{reason}}"),
            ),
            overrides=numbered("rank "),
            several=True,
            steps=((None, GOOD), (0.05, WARN), (0.3, BAD)),
            missing="no clock was held down, or there are no GPU series",
            links=[links.runbook(runbooks, "RankscopeGpuThermalSlowdown")],
        ),
    ]  # fmt: skip


def _gpu_memory_and_heat() -> list[Panel]:
    used, total = of(gpu.GPU_MEMORY_USED, NODE), of(gpu.GPU_MEMORY_TOTAL, NODE)
    hot = of(gpu.GPU_TEMPERATURE, NODE, 'sensor=~"core|gpu"')
    fullest = _few("topk", whole("max_over_time", used))
    key = "on (cluster, node, uuid)"
    size = worst(f"{whole('last_over_time', total)} and {key} {fullest}", "node", "uuid")
    capacity = f"{key} group_left () {size}"
    return [
        TimeSeries(
            title="GPU memory in use",
            description=f"Part of the GPU's memory that processes have taken, the {FEW} fullest."
            " PyTorch's allocator keeps what it once had, so look at growth.",
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
            description=f"The {FEW} hottest GPUs of the job. What counts is the distance to the"
            " peers: the limit is the GPU's own.",
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
    """Return the few of the job's GPUs that are first by a value of the whole range, with ranks.

    It is the same at each point of a panel, so that Prometheus finds it once.
    """
    return f"{choose}({FEW}, {with_rank(worst(order, *GPU, *more))})"


def _shown(selector: str, few: str, *more: str) -> str:
    """Return series of a few GPUs with their ranks.

    All others are dropped before anything else is done at each point: a job may have thousands.

    Args:
        selector: of what is shown.
        few: what `_few` chose.
        more: labels besides those of the GPU.
    """
    keys = ", ".join(("cluster", "node", "uuid", *more))
    series = worst(f"{selector} and on ({keys}) {few}", *GPU, *more)
    ranks = f"group {by('node', 'uuid', 'rank')} ({few})"
    return f"{series} * on (cluster, node, uuid) group_left (rank) {ranks}"


def network(runbooks: str) -> list[Panel]:
    """Return panels about the rails: the adapters next to the chosen ranks' GPUs."""
    port = ("node", "device", "port")
    sent, errors = of(rdma.TRANSMIT_BYTES, NODE), of(rdma.PORT_ERRORS, NODE)
    fast = whole("last_over_time", of(rdma.PORT_RATE, NODE))
    busiest = f"{worst(whole('rate', sent), *port)} / {worst(fast, *port)}"
    chosen = f"on ({PORT_KEYS}) topk({FEW}, {_rails(busiest)})"
    used = " / ".join(worst(f"{one} and {chosen}", *port) for one in (rate(sent), fast))
    typed = (*port, "type")
    faults = _rails(f"sum {by(*typed)} (increase({errors}[$__range]))")
    resent = job_nodes(worst(rate(of(netdev.TCP_RETRANSMITTED, NODE)), "node"))
    segments = job_nodes(worst(rate(of(netdev.TCP_SENT, NODE)), "node"))
    return [
        TimeSeries(
            title="Rails in use",
            description="What the adapters nearest to the ranks' GPUs send, as part of their rate."
            " One far below the others is a slow rail or a slow rank.",
            unit="percentunit",
            minimum=0,
            targets=targets((used, "{{node}} {{device}}:{{port}}")),
            overrides=numbered("_", ":"),
            several=True,
            steps=BUSY_PORT,
            missing="no RDMA port, or it is not known which is next to a GPU",
            links=[links.runbook(runbooks, "RankscopeAsymmetricRail")],
        ),
        Table(
            title="RDMA errors of the rails",
            description="Errors in the time range of the adapters nearest to the ranks' GPUs, by"
            " type; all zero is well.",
            targets=rows(f"topk({MANY}, {faults})"),
            transformations=columns(ERRORS),
            largest_first="errors",
            widths={"device": 90, "port": 50, "errors": 90},
            steps=ANY_IS_ODD,
            decimals=0,
            missing="no RDMA port, or it is not known which is next to a GPU",
            links=[links.runbook(runbooks, "RankscopeLinkErrors")],
        ),
        Table(
            title="Errors of network interfaces",
            description="Errors and dropped frames of the nodes' interfaces in the time range, by"
            " direction; all zero is well. RoCE rails are among them, by their interface's name.",
            unit="string",
            targets=rows(_interfaces(netdev.ERRORS), _interfaces(netdev.DROPPED)),
            transformations=[
                {"id": "merge", "options": {}},
                *columns(
                    {
                        "node": "node",
                        "device": "device",
                        "direction": "direction",
                        "Value #A": "errors",
                        "Value #B": "dropped",
                    }
                ),
            ],
            overrides=[
                override(name, {"unit": "locale", "decimals": 0}) for name in ("errors", "dropped")
            ],
            largest_first="errors",
            widths={"direction": 90, "errors": 80, "dropped": 80},
            missing="no network interface on a bus: virtual machines and pods may have none",
            links=[links.runbook(runbooks, "RankscopeLinkErrors")],
        ),
        TimeSeries(
            title="TCP segments sent again",
            description="Part of TCP segments that the job's nodes had to send again; on gloo and"
            " on sockets more than 0.1 % costs throughput.",
            unit="percentunit",
            minimum=0,
            targets=targets(
                (f"sum({resent}) / (sum({segments}) > 0)", "all nodes"),
                (f"max(({resent}) / (({segments}) > 0))", "worst node"),
            ),
            overrides=colored(["all nodes", "worst node"]),
            steps=((None, GOOD), (0.001, WARN), (0.01, BAD)),
            missing=shared.NO_AGENT,
            links=[links.runbook(runbooks, "RankscopeLinkRetransmission")],
        ),
    ]  # fmt: skip


def _interfaces(metric: Metric) -> str:
    """Return what interfaces counted in the time range, of those that counted most."""
    counted = f"increase({of(metric, NODE)}[$__range])"
    return f"topk({MANY}, {job_nodes(worst(counted, 'node', 'device', 'direction'))})"


def _rails(expression: str) -> str:
    """Keep adapters that are next to a GPU on the job's nodes."""
    nearest = whole("last_over_time", of(topology.GPU_NIC_INFO, NODE))
    return job_nodes(f"({expression}) and on (cluster, node, device) {nearest}")


def hosts(runbooks: str) -> list[Panel]:
    """Return panels about the nodes that the job runs on."""
    waiting = job_nodes(rate(of(host.PRESSURE, NODE, 'kind="some"')))
    free = f"{of(host.MEMORY_AVAILABLE, NODE)} / {of(host.MEMORY_TOTAL, NODE)}"
    oom = of(host.OOM_KILLS, NODE)
    return [
        TimeSeries(
            title="Host pressure",
            description="Part of time in which some task of the job's worst node waited for"
            " processors, memory or disks. Loaders and NCCL's proxy threads suffer first.",
            unit="percentunit",
            minimum=0,
            targets=targets((f"max by (resource) ({waiting})", "{{resource}}")),
            overrides=colored(["cpu", "io", "memory"]),
            steps=STALLED,
            missing="no pressure information: Linux 4.20 and newer with psi=1 has it",
            width=8,
            links=[links.runbook(runbooks, "RankscopeHostStalls")],
        ),
        TimeSeries(
            title="Ranks that wait for a CPU",
            description="Part of time in which the ranks that wait most were ready to run and had"
            " no processor, or their loader workers. One that stands out is held up by that and not"
            " by its GPU.",
            unit="percentunit",
            minimum=0,
            targets=targets(
                (
                    largest_rates(FEW, of(training.CPU_WAIT_SECONDS, JOB), "rank"),
                    "rank {{rank}} by its probe",
                ),
                (largest_rates(FEW, of(starvation.RANK_STARVED, JOB), "rank"), "rank {{rank}}"),
                (
                    largest_rates(FEW, of(starvation.LOADER_STARVED, JOB), "rank"),
                    "loader of rank {{rank}}",
                ),
            ),
            steps=STALLED,
            missing="neither does a probe count waits, on gloo, nor does an agent with hostPID",
            links=[links.runbook(runbooks, "RankscopeHostStalls")],
        ),
        TimeSeries(
            title="Memory left on the worst node",
            description="Part of a node's memory that is still to be had, the least of the job's"
            " nodes. At zero the kernel kills a process, often a loader's.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            targets=targets((f"min({job_nodes(free)})", "worst node")),
            overrides=colored(["worst node"]),
            width=8,
            missing=shared.NO_AGENT,
        ),
        Stat(
            title="OOM kills",
            description="Processes that kernels of the job's nodes killed for memory in the time"
            " range, whosever they were.",
            targets=now((f"sum({job_nodes(f'increase({oom}[$__range])')})", "")),
            steps=ANY_IS_BAD,
            decimals=0,
            missing=shared.NO_AGENT,
            briefly="no agent",
            links=[links.runbook(runbooks, "RankscopeOomRepeated")],
            height=8,
        ),
        Stat(
            title="Fullest disk",
            description="How full the fullest filesystem of the job's nodes is. Checkpoints and"
            " shared memory fail when it is full.",
            unit="percentunit",
            targets=now((f"max({job_nodes(of(host.DISK_USED, NODE))})", "")),
            steps=((None, GOOD), (0.85, WARN), (0.95, BAD)),
            missing=shared.NO_AGENT,
            briefly="no agent",
            links=[links.runbook(runbooks, "RankscopeNodeResourceExhausted")],
            height=8,
        ),
    ]
