"""Panels of the on-call dashboard about GPUs, nodes and networks, and about what cannot be seen."""

from __future__ import annotations

from rankscope_agent.contract.metrics import agent, canary, gpus, pods, rdma, training, watch
from rankscope_agent.contract.model import Metric
from rankscope_dashboards.boards import step_stream
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.expressions.queries import (
    CLUSTER,
    FEW,
    JOB,
    MANY,
    NODE,
    growth,
    largest,
    of,
    rate,
    whole,
)
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import colored, columns, lettered, numbered, override, texts
from rankscope_dashboards.parts.panels import (
    BAD,
    GOOD,
    BarGauge,
    Panel,
    Stat,
    Table,
    TimeSeries,
    now,
    rows,
    targets,
)
from rankscope_dashboards.parts.thresholds import ANY_IS_ODD, BUSY_PORT
from rankscope_dashboards.rules.alerts.canary import RIGHT

READY = texts({0: ("not ready", BAD), 1: ("ready", GOOD)})


def health(runbooks: str) -> list[Panel]:
    """Return panels about GPUs, containers and nodes."""
    return [*_gpus(runbooks), *_nodes(runbooks)]


def _gpus(runbooks: str) -> list[Panel]:
    # Of every GPU there is one series or, with two agents, as many of each: no result changes, and
    # grouping some 10,000 of them would take longest.
    busy = of(gpus.GPU_UTILIZATION, NODE)
    return [
        Table(
            title="Xids",
            description="Errors reported by GPU drivers, newest first, with NVIDIA's"
                        " recommended action if the kernel log had it. `rankscope xids` groups"
                        " them into incidents.",
            unit="string",
            overrides=[override("when", {"unit": "dateTimeFromNow"})],
            targets=rows(f"topk({MANY}, 1000 * {shared.xids()})"),
            transformations=columns(
                {
                    **shared.CLUSTER_COLUMN,
                    "node": "node",
                    "gpu": "GPU",
                    "xid": "Xid",
                    "action": "action",
                    "Value": "when",
                }
            ),
            largest_first="when",
            widths={"GPU": 50, "Xid": 50, "when": 120},
            missing="no Xid since the agents started, or Prometheus does not scrape them",
            links=[links.runbook(runbooks, "RankscopeGpuHardwareFault")],
        ),
        TimeSeries(
            title="GPU utilisation",
            description="Share of time in which any kernel runs: over all GPUs, and of the least"
            " busy GPU. A GPU that waits in a collective counts as busy.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            targets=targets(
                (f"avg({busy})", "mean"), (f"min({busy})", "least busy"),
                (f"quantile(0.1, {busy})", "10 % are below"),
            ),
            overrides=colored(["mean", "least busy", "10 % are below"]),
            missing=shared.NO_GPUS,
        ),
    ]  # fmt: skip


def _nodes(runbooks: str) -> list[Panel]:
    restarts = f"{shared.KUBE_RESTARTS}{{{CLUSTER}}}"
    ready = f'{shared.KUBE_NODE_CONDITION}{{{NODE},condition="Ready",status="true"}}'
    part = f"1 - min {by('node')} (avg_over_time({ready}[$__range]))"
    away = f"topk({MANY}, {part} > 0)"
    pods = by("namespace", "pod")
    return [
        Table(
            title="Container restarts",
            description="Containers that restarted in the time range, by pod.",
            targets=rows(f"topk({MANY}, sum {pods} ({growth(restarts)}))"),
            transformations=columns(
                shared.CLUSTER_COLUMN
                | {"namespace": "namespace", "pod": "pod", "Value": "restarts"}
            ),
            largest_first="restarts",
            widths={"restarts": 100},
            steps=ANY_IS_ODD,
            decimals=0,
            missing="no restarts, or kube-state-metrics is not scraped",
            links=[links.runbook(runbooks, "RankscopePodFailed")],
        ),
        Table(
            title="Nodes that were not ready",
            description="Nodes whose kubelet did not report Ready, according to the API"
                        " server: for which share of the time range, and their state now.",
            unit="string",
            targets=rows(away, f"min {by('node')} ({ready}) and on (cluster, node) {away}"),
            transformations=[
                {"id": "merge", "options": {}},
                *columns(
                    {
                        **shared.CLUSTER_COLUMN,
                        "node": "node",
                        "Value #B": "now",
                        "Value #A": "time not ready",
                    }
                ),
            ],
            overrides=[
                override("time not ready", {"unit": "percentunit"}),
                override(
                    "now", {"mappings": READY, "custom.cellOptions": {"type": "color-text"}}
                ),
            ],
            largest_first="time not ready",
            widths={"now": 90, "time not ready": 150},
            missing="all nodes were ready, or kube-state-metrics is not scraped",
        ),
    ]  # fmt: skip


def network(runbooks: str) -> list[Panel]:
    """Return panels about RDMA ports."""
    sent = of(rdma.TRANSMIT_BYTES, NODE)
    port = ("node", "device", "port")
    fast = whole("last_over_time", of(rdma.PORT_RATE, NODE))
    busiest = f"topk({FEW}, {worst(whole('rate', sent), *port)} / {worst(fast, *port)})"
    chosen = f"on (cluster, node, device, port) {busiest}"
    used = " / ".join(worst(f"{one} and {chosen}", *port) for one in (rate(sent), fast))
    counted = f"increase({of(rdma.PORT_ERRORS, NODE)}[$__range])"
    errors = f"topk({MANY}, sum {by('node', 'device', 'port', 'type')} ({counted}))"
    return [
        TimeSeries(
            title="RDMA ports in use",
            description=f"Traffic sent by ports relative to their rate; the {FEW} busiest in the"
            " time range. Near 100 %, jobs wait for the network.",
            unit="percentunit",
            minimum=0,
            targets=targets((used, "{{node}} {{device}}:{{port}} {{cluster}}")),
            overrides=numbered("_", ":"),
            several=True,
            steps=BUSY_PORT,
            missing=shared.NO_RDMA,
            links=[links.runbook(runbooks, "RankscopeLinkCongestion")],
        ),
        Table(
            title="RDMA errors",
            description="Errors counted by ports in the time range, by type; all should be"
                        " zero. A count that keeps increasing points to a cable, a transceiver"
                        " or a switch.",
            targets=rows(errors),
            transformations=columns(
                {
                    **shared.CLUSTER_COLUMN,
                    "node": "node",
                    "device": "device",
                    "port": "port",
                    "type": "type",
                    "Value": "errors",
                }
            ),
            largest_first="errors",
            widths={"device": 90, "port": 50, "errors": 90},
            steps=ANY_IS_ODD,
            decimals=0,
            missing=shared.NO_RDMA,
            links=[links.runbook(runbooks, "RankscopeLinkErrors")],
        ),
    ]  # fmt: skip


def unseen(runbooks: str) -> list[Panel]:
    """Return panels about what is not monitored, or cannot be.

    Args:
        runbooks: address at which docs/runbooks is served.
    """
    failing = f"{of(agent.COLLECTOR_SUCCESS, NODE)} == 0"
    return [
        Stat(
            title="Agents",
            description="Agents that answered Prometheus at its last scrape.",
            targets=now((f"count({of(agent.BUILD_INFO, CLUSTER)})", "")),
            missing=shared.NO_AGENT,
            width=4,
            briefly="no agent",
        ),
        BarGauge(
            title="Collectors without a source",
            description="Number of nodes on which a collector currently returns nothing. A"
            " collector without a source on any node is normal: NVML without GPUs,"
            " RDMA without ports.",
            unit="none",
            minimum=0,
            decimals=0,
            targets=now((f"topk({MANY}, count by (collector) ({failing}))", "{{collector}}")),
            missing="all collectors have their source, or no agent is scraped",
            width=10,
        ),
        _refused(runbooks),
        _watches(runbooks),
        *step_stream.panels(runbooks),
        _canary(runbooks),
        _of_jobs(
            watch.JOB_UNOBSERVED,
            "What could not be seen of jobs",
            "Ranks, nodes and layers that rankscope watch could not judge, by job;"
            " `rankscope diagnose` names them.",
        ),
        _of_jobs(
            watch.JOB_ANALYSIS_ERRORS,
            "Errors of analyzers, by job",
            "Conclusions about a job that are missing because an analyzer raised an exception"
            " on its data, which is a defect of Rankscope. Findings on this job may be"
            " missing; those on other jobs are not. The watch's log has the traceback.",
            links.runbook(runbooks, "RankscopeAnalysisErrors"),
        ),
    ]


def _refused(runbooks: str) -> Panel:
    return BarGauge(
        title="Names and rings not believed",
        description=(
            "Pods that name a job of another namespace, or an invalid name, and ring files"
            " that are refused, by reason; and invalid samples, by collector. None of"
            " their data is used."
        ),
        unit="none",
        minimum=0,
        decimals=0,
        targets=now(
            (
                f"sum by (reason) ({of(pods.JOB_NAMES_REJECTED, NODE)}"
                f" or {of(training.RINGS_REJECTED, NODE)})",
                "{{reason}}",
            ),
            (f"sum by (collector) ({of(agent.INVALID_SAMPLES, NODE)})", "samples of {{collector}}"),
        ),
        missing="nothing is rejected, or no agent is scraped",
        links=[links.runbook(runbooks, "RankscopeJobNameRefused")],
        width=10,
    )


def _watches(runbooks: str) -> Panel:
    return TimeSeries(
        title="Watches that evaluate, and those in doubt",
        description=(
            "Of the watches that share a lease, one evaluates. If none does, findings"
            " disappear; if two do, findings are doubled. Watches that cannot read the"
            " lease are in doubt: they are on standby without knowing whether another one"
            " evaluates, or they continue."
        ),
        targets=targets(
            (f"sum {by('lease')} ({of(watch.WATCH_LEADING, CLUSTER)})", "evaluate {{lease}}"),
            (f"sum {by('lease')} (1 - {of(watch.WATCH_LEASE_UP, CLUSTER)})", "in doubt {{lease}}"),
        ),
        overrides=lettered(),
        several=True,
        minimum=0,
        at_least=2,
        decimals=0,
        missing="rankscope watch is not scraped, or has no lease",
        links=[links.runbook(runbooks, "RankscopeWatchLeaseUnreadable")],
    )


def _canary(runbooks: str) -> Panel:
    named = worst(of(canary.CANARY_NAMED, CLUSTER, RIGHT), "job_id")
    return TimeSeries(
        title="Time since the canary's slow rank was named",
        description=(
            "The component canary trains a small job with a known slow rank every hour; if"
            " the watch names it, probe, agents, watch and scraping work. The alert fires"
            " after two missed runs."
        ),
        unit="s",
        targets=targets((f"time() - {named}", "{{job_id}} {{cluster}}")),
        overrides=lettered(),
        several=True,
        minimum=0,
        missing="there is no canary, or its slow rank was never named",
        links=[links.runbook(runbooks, "RankscopeCanaryMissed")],
    )


def _of_jobs(metric: Metric, title: str, description: str, *leads: tuple[str, str]) -> Panel:
    """Return a panel of what the watch could not do, by job."""
    return TimeSeries(
        title=title,
        description=description,
        targets=targets((largest(FEW, of(metric, JOB), "job_id"), "{{job_id}} {{cluster}}")),
        overrides=lettered(),
        several=True,
        minimum=0,
        at_least=4,
        decimals=0,
        steps=ANY_IS_ODD,
        missing="rankscope watch is not scraped",
        links=leads,
    )
