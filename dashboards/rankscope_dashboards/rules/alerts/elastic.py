"""The alert about jobs that continue with fewer ranks or pods than they had."""

from __future__ import annotations

from rankscope_agent.contract.metrics import agent, job_status
from rankscope_dashboards.expressions.joins import with_owner
from rankscope_dashboards.expressions.promql import by
from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert
from rankscope_dashboards.rules.alerts.preemptions import REPLICA_GROUPS

_RANGE = texts.known(
    f"max by (bound) ({job_status.JOB_ELASTIC_PODS.name}{{cluster=%q,job_id=%q}})",
    "Its {{ .Labels.bound }} is {{ .Value }} pods.",
    *("cluster", "job_id"),
)


def _in_phase(phase: str) -> str:
    return f'{records.JOB_PODS}{{phase="{phase}"}}'


def pods_in(phase: str) -> str:
    """Return how many pods of each job are in a phase."""
    return f"sum {by('job_id')} ({_in_phase(phase)})"


GOES_ON = (
    f"({records.JOB_ALIVE} >= on (cluster, job_id) {REPLICA_GROUPS}"
    f" and on (cluster, job_id) {records.JOB_STEPS} > 0)"
)
"""Jobs of replica groups of which at least one exists and trains: they have not failed."""

_READY = 'kube_node_status_condition{condition="Ready",status="true"}'
_THERE = (
    f"({_READY} == 1 or last_over_time({agent.BUILD_INFO.name}[1h]) unless on (cluster) {_READY})"
)
"""Nodes that work, or whose agent did within the last hour where nothing else tells."""


def _with_unseen(seen: str, by_node: str) -> str:
    """Return a job's count, with what was last seen on nodes whose agents are silent.

    A node that is down has lost what ran there; of one that works nothing is known.
    """
    unseen = (
        f"sum {by('job_id')} (last_over_time({by_node}[6h])"
        f" unless on (cluster, node) {agent.BUILD_INFO.name} and on (cluster, node) {_THERE})"
    )
    return f"({seen} + on (cluster, job_id) {unseen} or {seen})"


_RANKS = _with_unseen(records.JOB_ALIVE, records.NODE_ELASTIC_RANKS)
_GROUP_LOST = f"(1 - {_RANKS} / {records.JOB_WORLD_SIZE} > 0) and on (cluster, job_id) {GOES_ON}"

# The largest number of pods that ran counts as attainable: the job's limit may be far off.
_MOST_PODS = f"max {by('job_id')} (max_over_time({_in_phase('Running')}[6h]))"
_PODS = _with_unseen(f"({pods_in('Running')} > 0)", records.NODE_ELASTIC_PODS)
_FEWER_PODS = (
    f"(1 - {_PODS} / {_MOST_PODS} > 0)"
    f" and on (cluster, job_id) {job_status.JOB_ELASTIC_PODS.name}"
    f" unless on (cluster, job_id) {records.JOB_WORLD_SIZE}"
)

DEGRADED = Alert(
    name="RankscopeElasticJobDegraded",
    expression=with_owner(
        f"((1 - {records.JOB_WORLD_SIZE} / max_over_time({records.JOB_WORLD_SIZE}[6h]) > 0)"
        f" and on (cluster, job_id) ({records.JOB_ALIVE} > 0)"
        f"\nor ({_GROUP_LOST})\nor ({_FEWER_PODS}))"
    ),
    hold="10m",
    keep="30m",
    why="A launcher that loses a node continues without it at once, and adds it again after"
    " its reboot, within ten minutes if all goes well. If the job was made smaller on"
    " purpose, the alert fires for six hours. Jobs without the probe are judged by their pods,"
    " those of replica groups (TorchFT) by the ranks that live. What runs on a node whose agent is"
    " silent is unknown, and not lost: RankscopeAgentDown is about that.",
    severity="ticket",
    scope="job",
    summary=f"{texts.JOB} continues with {{{{ $value | humanizePercentage }}}} fewer ranks",
    description=f"{texts.JOB} runs with {{{{ $value | humanizePercentage }}}} fewer ranks than"
    " at its maximum within six hours: the launcher continued without the ranks that it lost."
    + _RANGE,
    needs="Without kube-state-metrics, ranks on nodes whose agents have been silent for an hour"
    " count as lost.",
    since="6h",
)
