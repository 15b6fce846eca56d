"""Panels of the debug dashboard about NCCL, networks and nodes of the selected job."""

from __future__ import annotations

from rankscope_agent.contract.metrics import (
    nccl_inspector,
    nccl_log,
    netdev,
    pod_netdev,
    rdma,
    topology,
    training,
)
from rankscope_agent.contract.model import Metric
from rankscope_dashboards.expressions.joins import join, one_of
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.expressions.queries import (
    FEW,
    JOB,
    MANY,
    NODE,
    PLACE,
    growth,
    job_nodes,
    job_pods,
    of,
    rate,
    whole,
    with_rank,
)
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import (
    colored,
    columns,
    numbered,
    override,
)
from rankscope_dashboards.parts.panels import (
    BAD,
    GOOD,
    WARN,
    Panel,
    Table,
    TimeSeries,
    rows,
    targets,
)
from rankscope_dashboards.parts.thresholds import ANY_IS_ODD, BUSY_PORT
from rankscope_dashboards.rules.recording_rules import QUANTILES

OPERATIONS = (
    *("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "SendRecv", "AlltoAll"),
    *("Send", "Recv", "Reduce", "Gather", "Scatter", "other"),
)
"""Operations of NCCL, by its Inspector's names; those of most jobs first."""

PORT_KEYS = "cluster, node, device, port"
ERRORS = {
    **shared.CLUSTER_COLUMN,
    "node": "node",
    "device": "device",
    "port": "port",
    "type": "type",
    "Value": "errors",
}


def collectives(runbooks: str) -> list[Panel]:
    """Return panels about gradient sync, operations and NCCL's logs."""
    sync = f"sum by (le) ({rate(of(training.SYNC_TIME, PLACE, part='_bucket'))})"
    seconds = job_nodes(rate(of(nccl_inspector.INSPECTOR_SECONDS, NODE)))
    count = job_nodes(rate(of(nccl_inspector.INSPECTOR_OPERATIONS, NODE)))
    lines = job_pods(of(nccl_log.NCCL_CONNECTIONS, NODE))
    return [
        TimeSeries(
            title="Gradient sync per step",
            description="Half, 95 % and 99 % of steps waited less than this in collectives."
            " It includes waiting for slow ranks.",
            unit="s",
            minimum=0,
            targets=shared.quantiles(sync),
            overrides=colored(tuple(QUANTILES)),
            missing="no steps, or not measured: on NCCL use its Inspector or a profile",
        ),
        TimeSeries(
            title="Duration of collectives by operation",
            description="Mean time of NCCL's operations on the job's nodes, from NCCL Inspector.",
            unit="s",
            minimum=0,
            targets=targets((f"sum by (op) ({seconds}) / (sum by (op) ({count}) > 0)", "{{op}}")),
            overrides=colored(OPERATIONS),
            missing="NCCL Inspector is not enabled: set NCCL_PROFILER_PLUGIN in the job",
        ),
        Table(
            title="NCCL transports",
            description="Connections that NCCL logged in the job's pods, or on its nodes if"
            " its pods are unknown. Between nodes expect NET with GPUDirect RDMA,"
            " never sockets.",
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
        _nccl_warnings(runbooks),
    ]


def _nccl_warnings(runbooks: str) -> Panel:
    warnings = job_pods(growth(of(nccl_log.NCCL_WARNINGS, NODE)))
    return Table(
        title="NCCL warnings",
        description="Warnings in the logs of the job's pods in the time range, by code."
        " `rankscope explain nccl-log FILE` explains them.",
        targets=rows(f"topk({MANY}, sum {by('node', 'pod_name', 'code')} ({warnings}))"),
        transformations=columns(
            {
                **shared.CLUSTER_COLUMN,
                "node": "node",
                "pod_name": "pod",
                "code": "code",
                "Value": "how often",
            }
        ),
        largest_first="how often",
        widths={"how often": 110},
        steps=ANY_IS_ODD,
        decimals=0,
        missing="no warnings, or no NCCL logs",
        links=[links.runbook(runbooks, "RankscopeNcclIbErrors")],
    )


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
    return [
        TimeSeries(
            title="Rails in use",
            description="Traffic sent by the adapters nearest to the ranks' GPUs, relative to"
                        " their rate. One far below the others is a slow rail or a slow rank.",
            unit="percentunit",
            minimum=0,
            targets=targets((used, "{{node}} {{device}}:{{port}}")),
            overrides=numbered("_", ":"),
            several=True,
            steps=BUSY_PORT,
            missing=shared.NO_RAILS,
            links=[links.runbook(runbooks, "RankscopeAsymmetricRail")],
        ),
        Table(
            title="RDMA errors of the rails",
            description="Errors in the time range on the adapters nearest to the ranks' GPUs,"
                        " by type; all should be zero.",
            targets=rows(f"topk({MANY}, {faults})"),
            transformations=columns(ERRORS),
            largest_first="errors",
            widths={"device": 90, "port": 50, "errors": 90},
            steps=ANY_IS_ODD,
            decimals=0,
            missing=shared.NO_RAILS,
            links=[links.runbook(runbooks, "RankscopeLinkErrors")],
        ),
        _interface_errors(runbooks),
        _sent_again(runbooks),
        _lost_blocks(runbooks),
        _adapter_health(runbooks),
        *_pod_interfaces(runbooks),
    ]  # fmt: skip


def _interface_errors(runbooks: str) -> Panel:
    return Table(
        title="Errors of network interfaces",
        description="Errors and dropped frames of the nodes' interfaces in the time range, by"
        " direction; all should be zero. RoCE rails are included under the name"
        " of their interface.",
        unit="string",
        targets=rows(_interfaces(netdev.ERRORS), _interfaces(netdev.DROPPED)),
        transformations=[
            {"id": "merge", "options": {}},
            *columns(
                {
                    **shared.CLUSTER_COLUMN,
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
        missing="no agent, or no physical interface: virtual machines and pods may have none",
        links=[links.runbook(runbooks, "RankscopeLinkErrors")],
    )


def _sent_again(runbooks: str) -> Panel:
    resent = job_nodes(worst(rate(of(netdev.TCP_RETRANSMITTED, NODE)), "node"))
    segments = job_nodes(worst(rate(of(netdev.TCP_SENT, NODE)), "node"))
    return TimeSeries(
        title="TCP segments sent again",
        description="Share of TCP segments that the job's nodes had to retransmit; on gloo"
        " and on sockets more than 0.1 % costs throughput.",
        unit="percentunit",
        minimum=0,
        targets=targets(
            (f"sum({resent}) / (sum({segments}) > 0)", "all nodes"),
            (f"max(({resent}) / (({segments}) > 0))", "worst node"),
        ),
        overrides=colored(["all nodes", "worst node"]),
        steps=((None, GOOD), (0.001, WARN), (0.01, BAD)),
        missing=(
            "no agent, or none in its node's network namespace: elsewhere the counters"
            " are those of its pod"
        ),
        links=[links.runbook(runbooks, "RankscopeLinkRetransmission")],
    )


def _lost_blocks(runbooks: str) -> Panel:
    counted = f"increase({of(netdev.FEC_BLOCKS, NODE)}[$__range])"
    blocks = job_nodes(worst(counted, "node", "device", "result"))
    return Table(
        title="Blocks that error correction met",
        description="Blocks with bit errors on the nodes' interfaces in the time range:"
        " corrected ones are normal on fast links, uncorrectable ones mean a bad"
        " cable or transceiver.",
        targets=rows(f"topk({MANY}, {blocks})"),
        transformations=columns(
            {
                **shared.CLUSTER_COLUMN,
                "node": "node",
                "device": "device",
                "result": "result",
                "Value": "blocks",
            }
        ),
        largest_first="blocks",
        widths={"result": 110, "blocks": 110},
        decimals=0,
        missing=_NETLINK,
        links=[links.runbook(runbooks, "RankscopeLinkErrors")],
    )


def _adapter_health(runbooks: str) -> Panel:
    keys = ("node", "pci")
    errors = worst(f"increase({of(netdev.ADAPTER_HEALTH_ERRORS, NODE)}[$__range])", *keys)
    series = of(netdev.ADAPTER_INFO, NODE)
    # An update within the time range leaves two versions, of which the present one counts.
    present, earlier = (
        one_of(worst(info, *keys, "driver", "firmware"), *keys)
        for info in (series, whole("last_over_time", series))
    )
    named = f"({present} or on (cluster, node, pci) {earlier})"
    joined = f"{errors} * on (cluster, node, pci) group_left (driver, firmware) {named}"
    return Table(
        title="Adapters by health and firmware",
        description="Errors that adapters reported to the kernel in the time range, with"
        " their firmware: the adapters of a job should run the same version.",
        targets=rows(f"topk({MANY}, {job_nodes(joined)})"),
        transformations=columns(
            {
                **shared.CLUSTER_COLUMN,
                "node": "node",
                "pci": "adapter",
                "driver": "driver",
                "firmware": "firmware",
                "Value": "errors",
            }
        ),
        largest_first="errors",
        widths={"errors": 80},
        steps=ANY_IS_ODD,
        decimals=0,
        missing=_NETLINK,
        links=[links.runbook(runbooks, "RankscopeAdapterUnhealthy")],
    )


def _pod_interfaces(runbooks: str) -> list[Panel]:
    keys = ("node", "pod_uid", "device")
    lost = " + ".join(
        f"sum {by(*keys)} (increase({of(metric, JOB)}[$__range]))"
        for metric in (pod_netdev.ERRORS, pod_netdev.DROPPED)
    )
    largest_packet = worst(whole("last_over_time", of(pod_netdev.MTU, JOB)), *keys)
    kinds = worst(whole("last_over_time", of(pod_netdev.INFO, JOB)), *keys, "kind")
    described = f"{largest_packet} * on (cluster, node, pod_uid, device) group_left (kind) {kinds}"
    shown = {**shared.CLUSTER_COLUMN, "node": "node", "pod_name": "pod", "device": "interface"}
    runbook = [links.runbook(runbooks, "RankscopePodInterface")]
    return [
        Table(
            title="Frames lost by interfaces inside pods",
            description="Frames with errors and dropped frames of the job's own interfaces in the"
            " time range, in its pods' network namespaces. Macvlan interfaces drop what"
            " is not meant for them: compare pods with each other.",
            targets=rows(f"topk({MANY}, {_with_pod(f'({lost})')})"),
            transformations=columns({**shown, "Value": "lost"}),
            largest_first="lost",
            widths={"lost": 80},
            missing="no agent that sees pods' processes (component tier-1), or no pods",
            decimals=0,
            links=runbook,
        ),
        Table(
            title="Interfaces inside pods",
            description="Kind and MTU of the job's own interfaces. An MTU that differs between"
            " pods stops collectives whose packets do not fit.",
            targets=rows(f"topk({MANY}, {_with_pod(described)})"),
            transformations=columns({**shown, "kind": "kind", "Value": "MTU"}),
            widths={"MTU": 80},
            missing="no agent that may enter pods' network namespaces (CAP_SYS_ADMIN)",
            decimals=0,
            links=runbook,
        ),
    ]


def _with_pod(expression: str) -> str:
    """Add the pod's name, empty if ranks have none."""
    key = ("node", "pod_uid")
    named = worst(whole("last_over_time", of(training.RANK_INFO, JOB)), *key, "pod_name")
    joined = join(f"({expression})", key, ("pod_name",), one_of(named, *key))
    return f"({joined} or on (cluster, node, pod_uid) ({expression}))"


_NETLINK = (
    "no agent in its node's network namespace (component host-network), or a driver"
    " without these counters"
)


def _interfaces(metric: Metric) -> str:
    """Return the interfaces' counts in the time range, of those with the largest counts."""
    counted = f"increase({of(metric, NODE)}[$__range])"
    return f"topk({MANY}, {job_nodes(worst(counted, 'node', 'device', 'direction'))})"


def _rails(expression: str) -> str:
    """Keep the adapters that are next to a GPU of the chosen ranks."""
    nearest = with_rank(whole("last_over_time", of(topology.GPU_NIC_INFO, NODE)))
    return f"({expression}) and on (cluster, node, device) ({nearest})"
