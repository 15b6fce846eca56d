"""Configuration of the chain's Prometheus and Alertmanager, and what Alertmanager sent."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope_analyzers.configuration.values import Configuration
from rankscope_dashboards.rules import recording_rules, routing
from rankscope_dashboards.rules.alerts import ALERTS
from rankscope_dashboards.rules.receivers import NOBODY
from rankscope_dashboards.rules.receivers import receivers as receivers_of
from rankscope_dashboards.rules.routing import Timing, Timings
from rankscope_dashboards.rules.rule_files import Links, recording, rule
from rankscope_dashboards.yaml_text import dump

STRAGGLER, FALLBACK = "RankscopeStraggler", "RankscopeSocketFallback"
FOLLOWED = (STRAGGLER, FALLBACK)
RANGE_SECONDS = 10
KEPT_SECONDS = 45
"""Seconds that an alert keeps firing after its condition ended: a quarter of an hour in production,
where outages last minutes. Here they last seconds."""

PENDING_SECONDS = {STRAGGLER: 30, FALLBACK: 1}
"""Seconds that alerts wait, a quarter of an hour and five minutes in production."""

RESEND_SECONDS = 10
"""An alert that Prometheus does not send again ends after four times as long."""

GRACE_SECONDS = 1
"""An alert with a longer wait survives a restart of Prometheus. Prometheus' default is ten minutes:
less than the slow rank's wait in production, more than both waits here."""

SOON = Timing("2s", "1s", "1h")
TIMINGS = Timings(SOON, SOON, SOON, Timing("0s", "1s", "1h"))
LINKS = Links("https://books.example.com", "https://graphs.example.com")

Message = Mapping[str, Any]
Alert = tuple[str, str]
"""The name of an alert and its subject: a job, or a pod without one."""


def rules() -> Mapping[str, Any]:
    """Return the generated rules that are followed, in seconds instead of minutes."""

    def quick(expression: str) -> str:
        return re.sub(r"\[\d+[smhd]\]", f"[{RANGE_SECONDS}s]", expression)

    records = [
        recording(one) | {"expr": quick(one.expression)}
        for group in recording_rules.GROUPS
        for one in group.records
    ]
    alerts = []
    for one in ALERTS:
        if one.name in FOLLOWED:
            made = dict(rule(one, LINKS))
            made |= {"expr": quick(str(made["expr"])), "for": f"{PENDING_SECONDS[one.name]}s"}
            alerts.append(made | {"keep_firing_for": f"{KEPT_SECONDS}s"})
    groups = {"records": records, "alerts": alerts}
    return {"groups": [{"name": n, "interval": "1s", "rules": all_} for n, all_ in groups.items()]}


def write_prometheus(folder: Path, agent: str, watch: str, alertmanager: str) -> Path:
    """Write Prometheus' configuration; return its path."""
    (folder / "rules.yaml").write_text(json.dumps(rules()))
    scraped = [
        {"targets": [agent], "labels": {"node": "chaos"}},
        {"targets": [watch]},
    ]
    config = {
        "global": {
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "evaluation_interval": "1s",
        },
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": "rankscope", "honor_labels": True, "static_configs": scraped}
        ],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config))
    return path


def write_alertmanager(folder: Path, webhook: str) -> Path:
    """Write Alertmanager's configuration, with the generated routes; return its path."""
    receivers: dict[str, Any] = {
        name: {"webhook_configs": [{"url": f"{webhook}/{name}"}]} if name != NOBODY else {}
        for name in receivers_of(Configuration())
    }
    path = folder / "alertmanager.yml"
    path.write_text(dump(routing.configuration(receivers, TIMINGS)))
    return path


def subject_of(labels: Mapping[str, str]) -> Alert:
    """Return which alert labels are of."""
    return labels["alertname"], labels.get("pod_name") or labels.get("job_id", "")


def firing(messages: Iterable[tuple[str, Message]]) -> set[Alert]:
    """Return the alerts that are firing after these messages, in their order."""
    last = {
        one["fingerprint"]: (one["status"], subject_of(one["labels"]))
        for _, message in messages
        for one in message["alerts"]
    }
    return {subject for status, subject in last.values() if status == "firing"}


def holding(answer: str) -> set[Alert]:
    """Return the alerts whose condition is true, by Prometheus' answer to `/api/v1/alerts`.

    One that only keeps firing after its condition ended is not among them: Prometheus forgets it
    when it is killed.
    """
    alerts = json.loads(answer)["data"]["alerts"]
    return {
        subject_of(one["labels"])
        for one in alerts
        if one["state"] == "firing" and "keepFiringSince" not in one
    }


def beginnings(messages: Iterable[tuple[str, Message]]) -> Iterator[Mapping[str, str]]:
    """Yield the labels of each alert that began in these messages, in their order.

    An alert that is sent again along with others of its group is still firing, and has not begun
    again.
    """
    firing: set[str] = set()
    for _, message in messages:
        for alert in message["alerts"]:
            identity = alert["fingerprint"]
            if alert["status"] == "firing" and identity not in firing:
                yield alert["labels"]
            (firing.add if alert["status"] == "firing" else firing.discard)(identity)


def begun_twice(messages: Iterable[tuple[str, Message]]) -> Iterator[str]:
    """Yield the alerts that began more than once, with the labels in which they differ."""
    found: dict[Alert, list[Mapping[str, str]]] = defaultdict(list)
    for labels in beginnings(messages):
        found[subject_of(labels)].append(labels)
    for (name, subject), begun in found.items():
        if len(begun) > 1:
            same = set.intersection(*(set(labels.items()) for labels in begun))
            others = "; ".join(str(dict(sorted(set(one.items()) - same))) for one in begun)
            yield f"{name} on {subject}, begun {len(begun)} times: {others}"


def repeated(messages: Sequence[tuple[str, Message]]) -> Iterator[Alert]:
    """Yield the alerts of messages without news: the same group with the same alerts."""
    last: dict[tuple[str, str], frozenset[tuple[str, str]]] = {}
    for receiver, message in messages:
        group = receiver, message["groupKey"]
        alerts = frozenset((one["fingerprint"], one["status"]) for one in message["alerts"])
        if last.get(group) == alerts:
            yield from (subject_of(one["labels"]) for one in message["alerts"])
        last[group] = alerts


def logged_twice(text: str) -> Iterator[str]:
    """Yield incidents of which a watch's log has the same change twice."""
    counts: Counter[tuple[str, int]] = Counter()
    for line in text.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):  # truncated lines do not count
            row = json.loads(line)
            counts[row["incident"], row["number"]] += 1
    yield from (f"{incident} change {n}" for (incident, n), times in counts.items() if times > 1)
