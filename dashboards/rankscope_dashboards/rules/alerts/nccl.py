"""Alerts from the logs of NCCL and PyTorch's watchdog, and from ranks' environments."""

from __future__ import annotations

from rankscope_agent.contract.metrics import nccl_log, summary
from rankscope_dashboards.expressions.joins import finding, with_job_of_pod, with_owner
from rankscope_dashboards.expressions.promql import LOG_POD, happened, worst
from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert, Group


def _worst_condition(condition: str, *more: str) -> str:
    """Return pods with a condition of NCCL; agents report no others."""
    series = f'{summary.POD_CONDITION.name}{{condition="{condition}"}}'
    return f"({worst(series, 'job_id', *LOG_POD, *more)})"


ALERTS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeSocketFallback",
        expression=with_owner(_worst_condition("socket_fallback", "reason")),
        hold="5m",
        keep="15m",
        why="The log shows it at once; five minutes give users time to end a job that they"
        " started with wrong settings. A restart shows it again within 15 minutes.",
        severity="by_class",
        scope="job",
        summary=f"NCCL of {texts.JOB} carries data over TCP",
        description=f"NCCL of {texts.JOB} on {texts.NODE} carries data between nodes over TCP"
        " sockets although the node has an active RDMA port: {{ $labels.reason }}. Expect a tenth"
        " of the bandwidth or less." + texts.DIAGNOSE,
    ),
    Alert(
        name="RankscopeNcclGdrMissing",
        expression=with_owner(_worst_condition("gdr_missing")),
        hold="5m",
        keep="15m",
        why="As with the socket fallback: it is known from the start and stays for the whole run.",
        severity="ticket",
        scope="job",
        summary=f"NCCL of {texts.JOB} runs without GPUDirect RDMA",
        description=f"{texts.number_of('RDMA connection')} of {texts.JOB} on {texts.NODE}"
        f" {texts.by_number('copies', 'copy')} through host memory: GPUDirect RDMA is missing.",
    ),
    Alert(
        name="RankscopeNcclInitIncomplete",
        expression=with_owner(_worst_condition("ranks_waiting")),
        hold="10m",
        keep="10m",
        why="NCCL's bootstrap waits up to ten minutes for peers, which large jobs need while"
        " images are pulled.",
        severity="by_class",
        scope="job",
        summary=f"NCCL communicators of {texts.JOB} do not come up",
        description=f"{texts.number_of('rank')} of {texts.JOB} on {texts.NODE} started to"
        " initialise a communicator but did not finish, waiting for a peer." + texts.DIAGNOSE,
    ),
    Alert(
        name="RankscopeNcclIbErrors",
        expression=with_owner(
            with_job_of_pod(worst(happened(nccl_log.NCCL_IB_ERRORS, "15m"), *LOG_POD, "device"))
        ),
        hold="1m",
        keep="30m",
        why="A completion error ends the job; if the port is bad, retries of the job hit it"
        " again within half an hour. Within a minute it is recorded which job the pod is of.",
        severity="by_class",
        scope="job",
        summary=f"InfiniBand errors in {texts.JOB}",
        description=f"NCCL of {texts.JOB} reported InfiniBand completion errors of adapter"
        f" {{{{ $labels.device }}}} on {texts.NODE}." + texts.DIAGNOSE,
    ),
    Alert(
        name="RankscopeNcclCollectiveTimeout",
        expression=with_owner(
            with_job_of_pod(worst(happened(nccl_log.NCCL_TIMEOUTS, "15m"), *LOG_POD, "op"))
        ),
        hold="1m",
        keep="30m",
        why="The watchdog has already waited for its own timeout, ten minutes by default. Within a"
        " minute it is recorded which job the pod is of.",
        severity="by_class",
        scope="job",
        summary=f"A collective of {texts.JOB} timed out",
        description=f"PyTorch's watchdog gave up on {{{{ $labels.op }}}} in {texts.JOB} on"
        f" {texts.NODE}: a rank did not arrive." + texts.DIAGNOSE,
    ),
    Alert(
        name="RankscopeNcclIntraNodeDegraded",
        expression=with_owner(_worst_condition("shared_memory")),
        hold="5m",
        keep="15m",
        why="It is known from the start of a run and stays the same until its end.",
        severity="ticket",
        scope="job",
        summary=f"GPUs of {texts.JOB} communicate through host memory",
        description=f"{texts.number_of('connection')} between GPUs of {texts.NODE} in {texts.JOB}"
        f" {texts.by_number('goes', 'go')} through shared memory of the host although the GPUs have"
        " NVLinks.",
    ),
    Alert(
        name="RankscopeNcclRanksDiffer",
        expression=with_owner(f"({records.JOB_NCCL_VERSIONS} > 1)"),
        hold="5m",
        keep="30m",
        why="Pods of two attempts of a job overlap for a few minutes.",
        severity="ticket",
        scope="job",
        summary=f"Ranks of {texts.JOB} run different NCCL versions",
        description=f"{texts.JOB} has {{{{ $value }}}} versions of NCCL: hangs and slow collectives"
        " may follow.",
    ),
    Alert(
        name="RankscopeEnvironmentDiffers",
        expression=with_owner(f"({records.JOB_ENVIRONMENTS} > 1)"),
        hold="5m",
        keep="30m",
        why="As with NCCL versions: two attempts may overlap.",
        severity="ticket",
        scope="job",
        summary=f"Transport variables differ between ranks of {texts.JOB}",
        description=f"Ranks of {texts.JOB} have {{{{ $value }}}} different sets of NCCL_, UCX_ and"
        " FI_ variables. `rankscope doctor --cluster`, or `--agent` for each of its nodes, names"
        " the variable and the ranks.",
    ),
)

MEMBERS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeMissingRank",
        expression=with_owner(finding(("missing_rank", "rank_stopped", "ras_missing"))),
        hold="2m",
        keep="15m",
        why="An elastic launcher replaces a rank within a minute or two.",
        severity="by_class",
        scope="job",
        summary=f"A rank of {texts.JOB} is missing or stopped",
        description=f"Finding {{{{ $labels.kind }}}}: {texts.CULPRIT}. The others wait for it."
        + texts.DIAGNOSE,
    ),
)

GROUPS: tuple[Group, ...] = (Group("rankscope-nccl", (*ALERTS, *MEMBERS)),)
