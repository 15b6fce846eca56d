"""What follows from pods of a job being taken away: others that fail, and a job that stands."""

from __future__ import annotations

from rankscope_agent.contract import pod_reasons
from rankscope_agent.contract.metrics import job_starts, job_status, summary, training
from rankscope_dashboards.expressions.promql import by, recent, worst
from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts.alert import Alert

FAILED_SECONDS = 900
"""Older failures are not news; failures with one cause occur within that time."""

CLOCKS_SECONDS = 60
"""By which nodes may differ about when pods were taken away and when the others failed."""


def any_of(reasons: tuple[str, ...]) -> str:
    """Return a matcher of any of some reasons."""
    return f'reason=~"{"|".join(reasons)}"'


FAILURES = f'{job_status.JOB_LAST_FAILURE.name}{{reason!~"{"|".join(pod_reasons.PREEMPTIONS)}"}}'
PREEMPTIONS = f"{job_status.JOB_LAST_FAILURE.name}{{{any_of(pod_reasons.PREEMPTIONS)}}}"

REPLICA_GROUPS = worst(training.JOB_REPLICA_GROUP_RANKS.name, "job_id")
AWAY_SECONDS = 2700
"""How long a preemption explains that a job stands, unless it runs again: as long as
RankscopeJobPreempted fires."""

_OF_NODE, _OF_JOB = "on (cluster, node, job_id)", "on (cluster, job_id) group_left ()"
_TAKEN = worst(PREEMPTIONS, "job_id")
_FAILED = worst(FAILURES, "node", "job_id")
_STARTED = worst(job_starts.JOB_PROCESSES_STARTED.name, "node", "job_id")
# On the node that runs nothing of the job any longer, the processes that ended are older, unless
# they were started after the preemption and have failed since.
_RAN = (
    f"min {by('job_id')} ({_STARTED} and {_OF_NODE} {summary.JOB_RANKS_ALIVE.name} > 0"
    f" or {_STARTED} > {_OF_JOB} {_TAKEN} < {_OF_NODE} {_FAILED})"
)
_RESTARTED = f"{_RAN} > on (cluster, job_id) {_TAKEN}"
"""When the first node's processes were started again, of jobs of which all nodes' were."""

AFTER_PREEMPTION = (
    f"({_FAILED} - {_OF_JOB} {_TAKEN}) >= -{CLOCKS_SECONDS} <= {FAILED_SECONDS}"
    f" unless {_OF_NODE} ({_FAILED} > {_OF_JOB} ({_RESTARTED}))"
)
"""Jobs by node whose newest failure follows from a preemption."""

TAKEN_AWAY = Alert(
    name="RankscopeJobTakenAway",
    expression=f"({recent(_TAKEN, AWAY_SECONDS)})\n"
    f"unless on (cluster, job_id) ({_RESTARTED})\n"
    f"unless on (cluster, job_id) ({records.JOB_ALIVE} >= on (cluster, job_id) {REPLICA_GROUPS})",
    hold="0s",
    keep="1m",
    why="It mutes alerts that a job stands, from when its pods were taken away until its"
    " processes on all nodes have been started again, or for 45 minutes. A scrape that fails does"
    " not end it.",
    severity="none",
    scope="job",
    summary="Job {{ $labels.job_id }} has not been started again since its pods were taken away",
    description="Pods of job {{ $labels.job_id }} were taken away"
    " {{ $value | humanizeDuration }} ago, and its processes are older or gone.",
)
