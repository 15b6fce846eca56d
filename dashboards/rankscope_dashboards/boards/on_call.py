"""The on-call dashboard: what is wrong now, which jobs it affects, which runbook to open."""

from __future__ import annotations

from rankscope_agent.contract.metrics import (
    agent,
    gpus,
    kernel_log,
    nccl_log,
    summary,
    training,
    watch,
)
from rankscope_dashboards.boards import on_call_checkpoints, on_call_jobs, on_call_nodes
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.expressions.queries import (
    CLUSTER,
    FEW,
    GPU_KEY,
    JOB,
    MANY,
    NODE,
    findings,
    gpus_with,
    growth,
    largest,
    of,
    whole,
    with_clusters,
)
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.dashboard import Dashboard, arrange
from rankscope_dashboards.parts.fields import columns, lettered, override, texts
from rankscope_dashboards.parts.panels import (
    BAD,
    GOOD,
    NEUTRAL,
    WARN,
    Panel,
    Stat,
    StateTimeline,
    Table,
    TimeSeries,
    now,
    rows,
    targets,
)
from rankscope_dashboards.parts.thresholds import ANY_IS_BAD, ANY_IS_ODD, LOST_SHARE
from rankscope_dashboards.rules.alerts.training import LONG_STEP_SECONDS

STARTING = "#56B4E9"

STATES = texts(
    {
        0: ("ended", NEUTRAL),
        1: ("makes no steps", BAD),
        2: ("training", GOOD),
        3: ("starting", STARTING),
        4: ("ended with an incident", NEUTRAL),
        5: ("makes no steps, incident", BAD),
        6: ("training, incident", WARN),
        7: ("starting, incident", WARN),
    }
)

STALL = "10m"
"""A checkpoint or an evaluation may take some minutes in which no step ends."""

PATIENCE = "1h"
"""For jobs whose steps are that long, as in `RankscopeJobStalled`."""


FIRING, PAGES = (
    f'ALERTS{{{CLUSTER},alertname=~"Rankscope.*",{severity},alertstate="firing"}}'
    for severity in ('severity!="none"', 'severity="page"')
)
"""Alerts without recipients are left out: they mute others while a node is in maintenance, or
always fire, so that their absence is noticed."""

WATCHDOG = 'ALERTS{cluster=~"$cluster|",alertname="RankscopeWatchdog"}'
"""Always fires where rules are loaded; without them no alert fires whatever is wrong. Rules for
several clusters have one without the label `cluster`."""


def dashboard(runbooks: str) -> Dashboard:
    """Return the dashboard.

    Args:
        runbooks: address at which docs/runbooks is served.
    """
    return Dashboard(
        uid=links.ON_CALL,
        title="Rankscope / On-call",
        description="What is wrong now, which jobs it affects, and which runbook to open.",
        variables=[
            shared.data_source(),
            shared.cluster(),
            shared.job_id(every=True),
            shared.node(jobs=False),
        ],
        marks=[*shared.marks(shared.xids()), shared.restarts()],
        links=links.views(links.ON_CALL),
        refresh="30s",
        panels=arrange(
            [
                ("What is wrong now", _now(runbooks)),
                ("Jobs", [*_jobs(runbooks), *_errors(runbooks)]),
                ("GPUs and nodes", on_call_nodes.health(runbooks)),
                ("Network", on_call_nodes.network(runbooks)),
                ("What cannot be seen", on_call_nodes.unseen(runbooks)),
            ]
        ),
    )


def _now(runbooks: str) -> list[Panel]:
    return [*_counts(runbooks), *_devices(runbooks), *_incidents(runbooks)]


def _counts(runbooks: str) -> list[Panel]:
    severity, hung = 'severity="page"', 'symptom="hang"'
    alive, before = _alive(), _alive(f" offset {STALL}")
    stalled = f"({_ended()} == 0) and ({alive} > 0) and ({before} > 0)"
    agents = f"count({of(agent.BUILD_INFO, CLUSTER)}) * 0"
    return [
        Stat(
            title="Firing alerts",
            description="Rankscope alerts that are firing now, without those that only mute others."
            " The list is below the incidents.",
            targets=now((f"count({FIRING}) or {agents} and on () count({WATCHDOG})", "")),
            steps=ANY_IS_BAD,
            missing="Prometheus has not loaded the rules, or does not scrape rankscope-agent here",
            briefly="not known",
        ),
        Stat(
            title="Urgent jobs",
            description=(
                "Jobs with an incident that is worth a page, according to rankscope watch."
            ),
            targets=now((_jobs_with(of(watch.FINDING_ACTIVE, JOB, severity)), "")),
            steps=ANY_IS_BAD,
            missing="no watch is scraped that reads any data",
            briefly="no watch",
            links=[links.runbook(runbooks, "RankscopeStraggler")],
        ),
        Stat(
            title="Hung jobs",
            description=(
                "Jobs whose processes live and end no step, according to rankscope watch: for a"
                " minute, or longer where steps or pauses of the job are long."
            ),
            targets=now((_jobs_with(of(watch.FINDING_CULPRIT_INFO, JOB, hung)), "")),
            steps=ANY_IS_BAD,
            missing="no watch is scraped that reads any data",
            briefly="no watch",
            links=[links.runbook(runbooks, "RankscopeHang")],
        ),
        Stat(
            title="Stalled jobs",
            description=f"Jobs with live ranks of which none has finished a step for {STALL}, or"
            f" {PATIENCE} with steps of minutes; a younger job may still be starting.",
            targets=now((f"count({stalled}) or {agents}", "")),
            steps=ANY_IS_BAD,
            missing=shared.NO_AGENT,
            briefly="no agent",
            links=[links.runbook(runbooks, "RankscopeJobStalled")],
        ),
    ]


def _jobs_with(findings: str) -> str:
    """Return the query for the number of jobs with some findings, 0 if a watch sees none."""
    return f"count(count {by('job_id')} ({findings})) or sum({of(watch.WATCH_JOBS, CLUSTER)}) * 0"


def _devices(runbooks: str) -> list[Panel]:
    every = worst(of(gpus.GPU_INFO, NODE), *GPU_KEY)
    lost = gpus_with(NODE, gpus.GPU_LOST, gpus.GPU_UNRESPONSIVE)
    fallback = worst(of(nccl_log.NCCL_SOCKET_FALLBACK, NODE), "node", "pod_namespace", "pod_name")
    return [
        Stat(
            title="Lost GPUs",
            description="GPUs that fell off the bus or do not respond.",
            targets=now((f"count({lost}) or 0 * count({every})", "")),
            steps=ANY_IS_BAD,
            missing=shared.NO_GPUS,
            briefly="no GPUs",
            links=[links.runbook(runbooks, "RankscopeGpuLost")],
        ),
        Stat(
            title="Pods on TCP",
            description="Pods whose NCCL carries data between nodes over TCP instead of RDMA.",
            targets=now((f"count({fallback} == 1) or 0 * count({fallback})", "")),
            steps=ANY_IS_BAD,
            missing=shared.NO_NCCL,
            briefly="no NCCL log",
            links=[links.runbook(runbooks, "RankscopeSocketFallback")],
        ),
    ]  # fmt: skip


def _incidents(runbooks: str) -> list[Panel]:
    # For a while, two agents report a rank that was restarted on another node.
    alive = worst(of(training.RANK_ALIVE, JOB), "job_id", "rank")
    ranks = f"sum {by('job_id')} ({alive})"
    return [
        Table(
            title="Incidents and culprits",
            description="What rankscope watch found: the cause, the rank, node and GPU to"
            " blame, and the share of each step that it costs. Follow the runbook,"
            " or run `rankscope diagnose` for the evidence.",
            unit="string",
            targets=rows(with_clusters(findings(JOB))),
            transformations=columns(shared.JOB_COLUMNS | shared.FINDING_COLUMNS),
            overrides=[*shared.finding_fields(runbooks), *shared.to_debug()],
            largest_first="step time lost",
            widths=shared.FINDING_WIDTHS,
            steps=LOST_SHARE,
            missing=shared.NO_WATCH,
            width=24,
            height=7,
        ),
        _alerts(runbooks),
        Table(
            title="Jobs that lost ranks",
            description="Jobs that lost some ranks while the others wait for them: they no"
            " longer train although they look alive.",
            targets=rows(
                with_clusters(
                    f"topk({MANY}, (count {by('job_id')} ({alive} == 0)) and ({ranks} > 0))"
                )
            ),
            transformations=columns(shared.JOB_COLUMNS | {"Value": "ended"}),
            overrides=shared.to_debug(),
            largest_first="ended",
            steps=ANY_IS_BAD,
            missing="no job has lost ranks, or none has the probe",
            links=[links.runbook(runbooks, "RankscopeMissingRank")],
            width=5,
        ),
        *on_call_jobs.panels(runbooks),
        *on_call_checkpoints.panels(runbooks),
    ]


def _alerts(runbooks: str) -> Panel:
    labels = ("alertname", "severity", "job_id", "node")
    pages_first = f"2 * {worst(PAGES, *labels)} or {worst(FIRING, *labels)}"
    open_runbook = {"title": "Open the runbook", "url": f"{runbooks}/${{__value.raw}}.md"}
    return Table(
        title="Alerts that fire",
        description="Rankscope alerts that are firing now, pages first, by the job or node that"
        " they concern. The name of an alert is the name of its runbook.",
        unit="string",
        targets=rows(with_clusters(f"topk({MANY}, {pages_first})")),
        transformations=columns(
            {
                "alertname": "alert",
                "severity": "severity",
                **shared.JOB_COLUMNS,
                "node": "node",
            }
        ),
        overrides=[
            override("alert", {"links": [{**open_runbook, "targetBlank": True}]}),
            *shared.to_debug(),
        ],
        widths={"alert": 240, "severity": 75},
        width=11,
        missing="no alert is firing, or Prometheus has not loaded the rules",
    )


def _alive(before: str = "") -> str:
    """Return the living ranks of jobs, as each node's agent has counted them."""
    return f"sum {by('job_id')} ({of(summary.JOB_RANKS_ALIVE, JOB)}{before})"


def _ended() -> str:
    """Return how many steps ended lately; 1 for jobs with long steps and one in an hour."""
    steps = of(training.STEP_LATENCY, JOB, part="_count")
    seconds = of(training.STEP_LATENCY, JOB, part="_sum")
    all_steps, before, spent = (
        f"sum {by('job_id')} (last_over_time({series}[{STALL}]{earlier}))"
        for series, earlier in ((steps, ""), (steps, f" offset {PATIENCE}"), (seconds, ""))
    )
    moves = f"({spent} / {all_steps} > {LONG_STEP_SECONDS} unless ({all_steps} == {before}))"
    return f"(0 * {moves} + 1 or sum {by('job_id')} (increase({steps}[{STALL}])))"


def _states() -> str:
    """Return the states of jobs: whether ranks live, steps end, the job is young, and incidents."""
    alive, ended = f"({_alive()} > bool 0)", _ended()
    old = f"({_alive(f' offset {STALL}')} > bool 0)"
    young = f"(1 - ({old} or 0 * {alive}))"
    incident = f"max {by('job_id')} ({of(watch.FINDING_ACTIVE, JOB)})"
    state = (
        f"({alive} + {alive} * ({ended} > bool 0) + 2 * {alive} * ({ended} == bool 0) * {young}"
        f" + 4 * ({incident} or 0 * {alive}))"
    )
    order = (
        f"max {by('job_id')} ({whole('max_over_time', of(watch.FINDING_LOST_FRACTION, JOB))})"
        f" or 0 * sum {by('job_id')} ({whole('last_over_time', of(summary.JOB_RANKS_ALIVE, JOB))})"
    )
    return f"{state} and topk({MANY}, {order})"


def _jobs(runbooks: str) -> list[Panel]:
    return [
        StateTimeline(
            title="State of jobs",
            description="Blue trains, light blue has not finished its first step, grey has ended,"
            f" red has not finished a step for {STALL}, or {PATIENCE} with steps of minutes,"
            f" orange has an incident. The {MANY} jobs that lose most are shown.",
            targets=targets((_states(), "{{job_id}} {{cluster}}")),
            mappings=STATES,
            unit="string",
            missing=shared.NO_STEPS,
        ),
        TimeSeries(
            title="Share of step time lost, by job",
            description="Share of each step lost to ongoing incidents: at 50 % a job takes"
                        " twice as long. Step times alone cannot show this, because all ranks"
                        " of a job take equally long.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            targets=targets(
                (largest(FEW, of(watch.FINDING_LOST_FRACTION, JOB), "job_id", "kind"),
                 "{{job_id}} {{kind}} {{cluster}}"),
            ),
            several=True,
            overrides=lettered(),
            steps=LOST_SHARE,
            missing=shared.NO_WATCH,
            links=[links.runbook(runbooks, "RankscopeStraggler")],
        ),
    ]  # fmt: skip


def _errors(runbooks: str) -> list[Panel]:
    warnings = of(nccl_log.NCCL_WARNINGS, NODE)
    timeouts = of(nccl_log.NCCL_TIMEOUTS, NODE)
    events = of(kernel_log.KERNEL_EVENTS, NODE)
    return [
        Table(
            title="Recent NCCL errors",
            description="Warnings and collective timeouts in the logs of training pods in the"
                        " time range. `rankscope explain nccl-log FILE` explains a log.",
            targets=rows(
                f"topk({MANY}, sum {by('node', 'pod_name', 'code')} ({growth(warnings)}))"
                f" or topk({MANY}, sum {by('node', 'pod_name', 'op')} ({growth(timeouts)}))",
            ),
            transformations=columns(
                {
                    **shared.CLUSTER_COLUMN,
                    "node": "node",
                    "pod_name": "pod",
                    "code": "warning",
                    "op": "timeout of",
                    "Value": "how often",
                }
            ),
            largest_first="how often",
            widths={"how often": 110},
            steps=ANY_IS_ODD,
            decimals=0,
            missing="no warnings, or no NCCL logs",
            links=[
                links.runbook(runbooks, "RankscopeNcclCollectiveTimeout"),
                links.runbook(runbooks, "RankscopeNcclIbErrors"),
            ],
        ),
        Table(
            title="Recent errors of kernels",
            description="Errors in the kernel logs of nodes in the time range, by kind."
                        " `rankscope explain kernel-log FILE` groups a log into incidents.",
            targets=rows(f"topk({MANY}, sum {by('node', 'kind')} ({growth(events)}))"),
            transformations=columns(
                shared.CLUSTER_COLUMN | {"node": "node", "kind": "kind", "Value": "how often"}
            ),
            largest_first="how often",
            widths={"how often": 110},
            steps=ANY_IS_ODD,
            decimals=0,
            missing="no kernel errors, or no kernel log can be read",
            links=[links.runbook(runbooks, "RankscopeHostHardware")],
        ),
    ]  # fmt: skip
