"""Rules in Prometheus' format: plain files, and the operator's custom resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rankscope_analyzers.configuration.values import Configuration
from rankscope_dashboards.rules import alerts, recording_rules
from rankscope_dashboards.rules.alerts.alert import Alert, Group, severity_by_class
from rankscope_dashboards.rules.alerts.texts import sentence
from rankscope_dashboards.rules.ownership import owner_of
from rankscope_dashboards.rules.recording_rules import Record, RecordGroup
from rankscope_dashboards.yaml_text import Value, dump

HEADER = "# Made by rankscope-dashboards generate; do not edit.\n"

VARIABLES = ("cluster", "job_id", "node", "rank")
"""Labels of an alert that are passed to its dashboard."""


@dataclass(frozen=True, slots=True)
class Links:
    """The installation that alerts are generated for: targets of links, and who may page.

    Args:
        runbooks: address at which docs/runbooks is served, without a slash at the end.
        dashboards: address of Grafana.
        paging_namespaces: namespaces whose jobs may page.
        known: objectives, thresholds and owners.
    """

    runbooks: str = "https://rankscope.example.com/docs/runbooks"
    dashboards: str = "https://grafana.example.com"
    paging_namespaces: tuple[str, ...] = ()
    known: Configuration = field(default_factory=Configuration)


def files(links: Links) -> Mapping[str, str]:
    """Return the content of all rule files by name."""
    rules = {
        "recording_rules": [_records(group) for group in recording_rules.groups(links.known)],
        "alerts": [_alerts(group, links) for group in alerts.groups(links.known.thresholds)],
    }
    return dict(_files(rules))


def _files(rules: Mapping[str, list[Value]]) -> Iterator[tuple[str, str]]:
    for name, groups in rules.items():
        yield f"rules/{name}.yaml", HEADER + dump({"groups": groups})
        resource: Value = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {
                "name": f"rankscope-{name.replace('_', '-')}",
                "labels": {"app.kubernetes.io/name": "rankscope", "role": "alert-rules"},
            },
            "spec": {"groups": groups},
        }
        yield f"prometheusrules/{name}.yaml", HEADER + dump(resource)


def _records(group: RecordGroup) -> Value:
    rules = [recording(record) for record in group.records]
    return {"name": group.name, "interval": group.interval, "rules": rules}


def _alerts(group: Group, links: Links) -> Value:
    rules = [rule(alert, links) for alert in group.alerts]
    return {"name": group.name, "interval": group.interval, "rules": rules}


def recording(record: Record) -> dict[str, Value]:
    """Return one recording rule."""
    made: dict[str, Value] = {"record": record.name, "expr": record.expression}
    return made | ({"labels": dict(record.labels)} if record.labels else {})


def rule(alert: Alert, links: Links) -> Mapping[str, Value]:
    """Return one alerting rule."""
    times = {"for": alert.hold, "keep_firing_for": alert.keep}
    by_class = alert.severity == "by_class"
    return {
        "alert": alert.name,
        "expr": alert.expression,
        **{name: time for name, time in times.items() if time != "0s"},
        "labels": {
            "severity": (
                severity_by_class(links.paging_namespaces) if by_class else alert.severity
            ),
            "scope": alert.scope,
            "owned_by": owner_of(alert.name),
        },
        "annotations": dict(_annotations(alert, links)),
    }


def _annotations(alert: Alert, links: Links) -> Iterator[tuple[str, str]]:
    yield "summary", sentence(alert.summary)
    yield "description", sentence(alert.description)
    yield "runbook_url", f"{links.runbooks}/{alert.name}.md"
    # An empty variable would select nothing; an omitted one selects all.
    variables = "".join(
        f"{{{{ with $labels.{label} }}}}&var-{label}={{{{ . | urlquery }}}}{{{{ end }}}}"
        for label in VARIABLES
    )
    time = f"from=now-{alert.since}&to=now"
    yield "dashboard_url", f"{links.dashboards}/d/{alert.dashboard}?{time}{variables}"
    if alert.needs:
        yield "needs", alert.needs
