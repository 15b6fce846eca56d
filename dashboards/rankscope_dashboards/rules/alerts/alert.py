"""The data of an alert, before it becomes YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["page", "ticket", "none", "by_class"]
"""Recipients: the engineer on call, a queue, no one. `by_class` pages for jobs of the production
class in the namespaces that may page, and makes a ticket for the owner of any other."""

Scope = Literal["job", "node", "cluster", "project"]
"""What alerts are grouped by: those of one job, node, cluster or project go together."""

Dashboard = Literal[
    "rankscope-executive", "rankscope-on-call", "rankscope-debug", "rankscope-checkpoints"
]

PRODUCTION = "production"
"""The class of jobs that page, a value of the `class` label of rankscope_job_info."""


def severity_by_class(paging_namespaces: Sequence[str]) -> str:
    """Return the severity of alerts about jobs, a template.

    The owner of a pod chooses its labels, including the class, but not its namespace, which is the
    prefix of a job's name.

    Args:
        paging_namespaces: those whose jobs may page; without any, every such alert is a ticket.
    """
    if not paging_namespaces:
        return "ticket"
    named = f'match "^({"|".join(paging_namespaces)})/" $labels.job_id'
    paging = f'and (eq $labels.class "{PRODUCTION}") ({named})'
    return f"{{{{ if {paging} }}}}page{{{{ else }}}}ticket{{{{ end }}}}"


@dataclass(frozen=True, slots=True)
class Alert:
    """One condition.

    Args:
        name: also the name of its runbook, docs/runbooks/NAME.md.
        expression: PromQL; every result is one alert.
        hold: how long the expression must be true before the alert fires, such as "5m"; "0s" is at
            once.
        keep: how long it keeps firing after the expression was last true, so that a condition that
            comes and goes is one notification.
        why: the reason for both times and for the limit in the expression.
        summary: one line, a template.
        description: what to know before opening anything, a template.
        needs: third-party exporters that it reads, and what it is without them, in a sentence.
        dashboard: where to look.
        since: how far back to look, as Grafana writes durations.
    """

    name: str
    expression: str
    hold: str
    keep: str
    why: str
    severity: Severity
    scope: Scope
    summary: str
    description: str
    needs: str = ""
    dashboard: Dashboard = "rankscope-on-call"
    since: str = "1h"


@dataclass(frozen=True, slots=True)
class Group:
    """Alerts that are evaluated one after another.

    Args:
        interval: time between two evaluations; expressions over hours need not be evaluated each
            minute.
    """

    name: str
    alerts: tuple[Alert, ...]
    interval: str = field(default="30s")
