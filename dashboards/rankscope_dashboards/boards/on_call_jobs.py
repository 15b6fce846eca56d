"""The on-call dashboard's tables of jobs whose pods wait or fail, with the reason."""

from __future__ import annotations

from rankscope_agent.contract import pod_reasons
from rankscope_agent.contract.metrics import job_status
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.expressions.queries import JOB, MANY, of, with_clusters
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import columns, override
from rankscope_dashboards.parts.panels import Panel, Table, rows
from rankscope_dashboards.parts.thresholds import ANY_IS_BAD

RECENT_SECONDS = 6 * 3600
"""What failed longer ago is another shift's, and has been told."""


def waiting(runbooks: str) -> Panel:
    """Return the table of pods that do not start, by reason."""
    starting = "|".join(pod_reasons.STARTING)
    pods = of(job_status.JOB_WAITING_PODS, JOB, f'reason!~"{starting}"')
    return Table(
        title="Pods that do not start",
        description="Pods of training jobs with a container that waits for something wrong, by the"
        " reason that kubectl shows: an image, a secret, or the pause after a failure.",
        targets=rows(with_clusters(f"topk({MANY}, sum {by('job_id', 'reason')} ({pods}) > 0)")),
        transformations=columns(
            shared.JOB_COLUMNS | {"reason": "waits for", "Value": "pods"},
        ),
        overrides=shared.to_debug(),
        largest_first="pods",
        widths={"pods": 50},
        steps=ANY_IS_BAD,
        missing="all pods start, or agents have no access to the API server",
        links=[
            links.runbook(runbooks, "RankscopeCrashLoop"),
            links.runbook(runbooks, "RankscopeImagePullFailing"),
            links.runbook(runbooks, "RankscopeContainerNotCreated"),
        ],
        width=6,
    )


def failing(runbooks: str) -> Panel:
    """Return the table of jobs whose pods failed or were taken away lately."""
    newest = worst(of(job_status.JOB_LAST_FAILURE, JOB), "job_id", "node", "reason", "detail")
    return Table(
        title="Failing jobs",
        description="Jobs with containers that failed, or pods that failed or were taken away,"
        " within six hours, newest first. `rankscope explain job-log FILE`"
        " finds the rank that failed first.",
        unit="string",
        targets=rows(with_clusters(f"topk({MANY}, 1000 * ({newest} > time() - {RECENT_SECONDS}))")),
        transformations=columns(
            shared.JOB_COLUMNS
            | {"node": "node", "reason": "reason", "detail": "exit", "Value": "when"}
        ),
        overrides=[override("when", {"unit": "dateTimeFromNow"}), *shared.to_debug()],
        largest_first="when",
        widths={"when": 120},
        missing="no pod failed, or agents have no access to the API server",
        links=[
            links.runbook(runbooks, "RankscopePodFailed"),
            links.runbook(runbooks, "RankscopeJobPreempted"),
        ],
        width=24,
        height=6,
    )
