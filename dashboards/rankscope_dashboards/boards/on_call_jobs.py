"""The on-call dashboard's tables of jobs whose pods wait or fail, with the reason."""

from __future__ import annotations

from rankscope_agent.contract import pod_reasons
from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.metrics import job_logs, job_status
from rankscope_analyzers.logs.failure_report import OTHER_RUNBOOK, RUNBOOKS
from rankscope_dashboards.boards import on_call_waiting
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.expressions.queries import JOB, MANY, of, with_clusters
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import columns, override
from rankscope_dashboards.parts.panels import Panel, Table, rows
from rankscope_dashboards.parts.thresholds import ANY_IS_BAD

RECENT_SECONDS = 6 * 3600
"""Older failures belong to another shift, and have been reported."""

ATTEMPT_SECONDS = 120
"""Failures this close to the newest are of one attempt, as in agents and analyzers."""

OWN, VICTIM = 'own="true"', 'own="false"'


def panels(runbooks: str) -> list[Panel]:
    """Return the tables, those from the cluster's objects last."""
    by_agents = [waiting(runbooks), failing(runbooks), recent_errors(runbooks)]
    return [*by_agents, *on_call_waiting.panels(runbooks)]


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
        widths={"waits for": 190, "pods": 66},  # CreateContainerConfigError is the longest
        steps=ANY_IS_BAD,
        missing="all pods start, or agents have no access to the API server",
        links=[
            links.runbook(runbooks, "RankscopeCrashLoop"),
            links.runbook(runbooks, "RankscopeImagePullFailing"),
            links.runbook(runbooks, "RankscopeContainerNotCreated"),
        ],
        width=8,
    )


def failing(runbooks: str) -> Panel:
    """Return the table of jobs whose pods recently failed or were evicted."""
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
        width=11,
        height=6,
    )


def recent_errors(runbooks: str) -> Panel:
    """Return the table of failures in jobs' logs: cause and rank."""
    failures = worst(of(job_logs.JOB_LOG_FAILURE, JOB), "job_id", "node", "cause", "rank", "own")
    newest = f"max {by('job_id')} ({of(job_logs.JOB_LOG_FAILURE, JOB)})"
    # A failure two minutes before the newest one belonged to another attempt.
    attempt = f"({failures} > on (cluster, job_id) group_left () ({newest} - {ATTEMPT_SECONDS}))"
    own = f"group {by('job_id')} ({of(job_logs.JOB_LOG_FAILURE, JOB, OWN)})"
    victims = f"({of(job_logs.JOB_LOG_FAILURE, JOB, VICTIM)} and on (cluster, job_id) {own})"
    same = "cluster, job_id, node, cause, rank, own"
    first = f"({attempt} unless on ({same}) {victims})"
    known = _with_runbook(f"{first} > time() - {RECENT_SECONDS}")
    return Table(
        title="Recent errors",
        description="Ranks that failed in the newest failed attempt of a job, with the cause, from"
        " the logs of its pods, within six hours. The first of them is the earliest;"
        " `rankscope diagnose` compares the nodes.",
        unit="string",
        targets=rows(with_clusters(f"bottomk({MANY}, 1000 * ({known}))")),
        transformations=columns(
            shared.JOB_COLUMNS
            | {"rank": "rank", "node": "node", "cause": "cause", "runbook": "runbook"}
            | {"Value": "when"}
        ),
        overrides=[
            override("when", {"unit": "dateTimeFromNow"}),
            override(
                "runbook",
                {
                    "links": [
                        {"title": "Open the runbook", "url": f"{runbooks}/${{__value.raw}}.md"}
                    ]
                },
            ),
            *shared.to_debug(),
        ],
        widths={"when": 110, "rank": 50, "runbook": 180},
        missing="no failure in the logs that agents read",
        width=13,
        height=6,
    )


def _with_runbook(expression: str) -> str:
    """Add the runbook for the cause."""
    found = f'label_replace({expression}, "runbook", "{OTHER_RUNBOOK}", "cause", ".*")'
    for cause, runbook in RUNBOOKS.items():
        if cause != causes.NONE:
            found = f'label_replace({found}, "runbook", "{runbook}", "cause", "{cause}")'
    return found
