"""Panels of the debug dashboard about the nodes of the chosen job."""

from __future__ import annotations

from rankscope_agent.contract.metrics import host, job_status, kernel_log, starvation, training
from rankscope_dashboards.expressions.promql import worst
from rankscope_dashboards.expressions.queries import (
    JOB,
    MANY,
    NODE,
    job_nodes,
    largest_rates,
    of,
    rate,
)
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import (
    colored,
    columns,
    line_style,
    matching,
    numbered,
    override,
)
from rankscope_dashboards.parts.panels import (
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
from rankscope_dashboards.parts.thresholds import ANY_IS_BAD
from rankscope_dashboards.rules.alerts.host import START_KINDS

STALLED = ((None, GOOD), (0.1, WARN), (0.4, BAD))
"""Fraction of time in which some task of a node waited; loaders begin to suffer at a tenth."""

FULL_NODE = ((None, GOOD), (0.9, WARN), (0.95, BAD))
"""Fractions of a node's memory: `RankscopeNodeResourceExhausted` fires at the second."""

LARGE = 56
"""Pixels: filling a panel of eight rows, a single digit would be three times that size."""

SOME = 6
"""Ranks of each of three measures in one panel, which together stay below twenty lines."""


def panels(runbooks: str) -> list[Panel]:
    """Return panels about the nodes that the job runs on."""
    waiting = job_nodes(rate(of(host.PRESSURE, NODE, 'kind="some"')))
    free = f"{of(host.MEMORY_AVAILABLE, NODE)} / {of(host.MEMORY_TOTAL, NODE)}"
    return [
        TimeSeries(
            title="Host pressure",
            description="Share of time in which some task on the job's worst node waited for"
            " CPUs, memory or disks. Data loaders and NCCL's proxy threads suffer"
            " first.",
            unit="percentunit",
            minimum=0,
            # A counter that is read a little late seems to grow by more than the elapsed time.
            targets=targets((f"clamp_max(max by (resource) ({waiting}), 1)", "{{resource}}")),
            overrides=colored(["cpu", "io", "memory"]),
            steps=STALLED,
            missing=(
                "no agent, or no pressure information, which needs Linux 4.20 or newer with psi=1"
            ),
            links=[links.runbook(runbooks, "RankscopeHostStalls")],
        ),
        _waiting_for_cpus(runbooks),
        TimeSeries(
            title="Memory in use on the fullest node",
            description="Share of memory that programs can no longer get, on the fullest of"
            " the job's nodes. At 100 % the kernel kills a process, often a loader"
            " worker.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            steps=FULL_NODE,
            targets=targets((f"1 - min({job_nodes(free)})", "fullest node")),
            overrides=colored(["fullest node"]),
            missing=shared.NO_AGENT,
        ),
        _oom_kills(runbooks),
        Stat(
            title="Fullest disk",
            description="Usage of the fullest file system on the job's nodes. Checkpoints and"
            " shared memory fail when it is full.",
            unit="percentunit",
            targets=now((f"max({job_nodes(of(host.DISK_USED, NODE))})", "")),
            steps=((None, GOOD), (0.85, WARN), (0.95, BAD)),
            missing=shared.NO_AGENT,
            briefly="no agent",
            links=[links.runbook(runbooks, "RankscopeNodeResourceExhausted")],
            height=8,
            width=6,
            letters=LARGE,
        ),
        _ended_processes(runbooks),
        _pods_of_the_job(runbooks),
        _not_started(runbooks),
    ]


def _not_started(runbooks: str) -> Panel:
    last = worst(of(kernel_log.KERNEL_LAST_EVENT, NODE, f'kind=~"{START_KINDS}"'), "node", "kind")
    return Table(
        title="GPUs and adapters that did not start",
        description="What the kernels of the job's nodes report of devices that their drivers"
        " could not start, and of software RoCE, newest first."
        " `rankscope explain kernel-log FILE` names the devices.",
        unit="string",
        width=24,
        overrides=[override("when", {"unit": "dateTimeFromNow"})],
        targets=rows(f"topk({MANY}, 1000 * {job_nodes(last)})"),
        transformations=columns(
            {**shared.CLUSTER_COLUMN, "node": "node", "kind": "what", "Value": "when"}
        ),
        largest_first="when",
        widths={"when": 120},
        missing="all devices started since the agents did, or they read no kernel log",
        links=[links.runbook(runbooks, "RankscopeDeviceNotStarted")],
    )


def _ended_processes(runbooks: str) -> Panel:
    last = worst(of(kernel_log.POD_LAST_EVENT, NODE), "node", "kind", "scope", "pod_uid")
    return Table(
        title="Processes that kernels of the job's nodes ended",
        description="Kills for lack of memory and crashes from the kernel logs, newest first,"
        " and whether the process belonged to the job's own pods or to others."
        " `rankscope diagnose` blames only the former.",
        unit="string",
        width=24,
        overrides=[override("when", {"unit": "dateTimeFromNow"})],
        targets=rows(f"topk({MANY}, 1000 * {job_nodes(last)})"),
        transformations=columns(
            {
                **shared.CLUSTER_COLUMN,
                "node": "node",
                "pod_uid": "pod's UID",
                "kind": "what",
                "scope": "whose memory was full",
                "Value": "when",
            }
        ),
        largest_first="when",
        widths={"pod's UID": 310, "when": 120},
        missing="no process was ended since the agents started, or they read no kernel log",
        links=[links.runbook(runbooks, "RankscopeOomRepeated")],
    )


def _pods_of_the_job(runbooks: str) -> Panel:
    counted = (
        (job_status.JOB_FAILURES, "failed"),
        (job_status.JOB_RESTARTS, "started again"),
        (job_status.JOB_PREEMPTIONS, "taken away"),
    )
    return TimeSeries(
        title="Failures and restarts of the job's pods",
        description="Containers and pods of the job that failed, were started again or made anew,"
        " and pods that were taken away for others, as often as agents saw it.",
        minimum=0,
        decimals=0,
        targets=targets(
            *((f"sum(increase({of(one, JOB)}[$__rate_interval]))", name) for one, name in counted)
        ),
        overrides=colored([name for _, name in counted]),
        missing="no agent, or agents have no access to the API server",
        links=[
            links.runbook(runbooks, "RankscopePodFailed"),
            links.runbook(runbooks, "RankscopeCrashLoop"),
        ],
        width=24,
    )


def _oom_kills(runbooks: str) -> Panel:
    oom = of(host.OOM_KILLS, NODE)
    return Stat(
        title="OOM kills",
        description="Processes that the kernels of the job's nodes killed for lack of memory"
        " in the time range, whether of this job or not.",
        targets=now((f"sum({job_nodes(f'increase({oom}[$__range])')})", "")),
        steps=ANY_IS_BAD,
        decimals=0,
        missing=shared.NO_AGENT,
        briefly="no agent",
        links=[links.runbook(runbooks, "RankscopeOomRepeated")],
        height=8,
        width=6,
        letters=LARGE,
    )


def _waiting_for_cpus(runbooks: str) -> Panel:
    return TimeSeries(
        title="Ranks that wait for a CPU",
        description="Share of time in which ranks, or their loader workers, were ready to run"
        " but had no CPU; those that wait most. A rank that stands out is held up"
        " by this and not by its GPU.",
        unit="percentunit",
        minimum=0,
        targets=targets(
            (
                largest_rates(SOME, of(training.CPU_WAIT_SECONDS, JOB), "rank"),
                "rank {{rank}} by its probe",
            ),
            (largest_rates(SOME, of(starvation.RANK_STARVED, JOB), "rank"), "rank {{rank}}"),
            (
                largest_rates(SOME, of(starvation.LOADER_STARVED, JOB), "rank"),
                "loader of rank {{rank}}",
            ),
        ),
        steps=STALLED,
        overrides=[
            *numbered("rank "),
            matching("^loader", line_style("dot")),
            matching("probe$", line_style("dash")),
        ],
        several=True,
        missing=("CPU waits are counted neither by a probe (on gloo) nor by an agent with hostPID"),
        links=[links.runbook(runbooks, "RankscopeHostStalls")],
    )
