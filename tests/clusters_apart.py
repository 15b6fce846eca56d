"""Cases of alerts that promtool follows together, each in a cluster of its own.

All rules keep clusters apart, and an evaluation costs promtool hardly more for many series than for
a few: what the rules cost is paid once for all cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alert_timelines import Case, Series, State, in_cluster, of_cluster
from promtool_tests import LINKS, needed, rules_tried
from rankscope_dashboards.rules import recording_rules
from rankscope_dashboards.rules.alerts import ALERTS
from rankscope_dashboards.rules.rule_files import recording, rule

Check = tuple[str, int, int]
"""Of an alert's name: at which minute, and how many fire."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What a cluster has, bad all the time, and which of its alerts fire."""

    series: Sequence[Series]
    checks: Sequence[Check]


def of_alert(name: str, series: Iterable[Series], checks: Iterable[tuple[int, int]]) -> Followed:
    """Return a cluster of which a single alert is looked at."""
    return Followed(tuple(series), [(name, minute, count) for minute, count in checks])


def follow_together(
    folder: Path,
    promtool: str,
    clusters: Mapping[str, Followed],
    step: int = 1,
    sample: int | None = None,
    *,
    alerts_first: bool = False,
) -> Mapping[str, str]:
    """Let promtool see when the alerts of each cluster fire.

    Args:
        folder: where to write the rules.
        promtool: the program.
        clusters: what is followed, by names without quotes.
        step: minutes between two evaluations.
        sample: minutes between two samples, a part of `step`; None takes up to five.
        alerts_first: whether records come after the alerts that read them: Prometheus evaluates
            each group at a moment of its own.

    Returns:
        For each cluster, what promtool has to say against it.
    """
    *records, alerts = rules_of({name for one in clusters.values() for name, _, _ in one.checks})
    groups = [alerts, *records] if alerts_first else [*records, alerts]
    length = max(minute for one in clusters.values() for _, minute, _ in one.checks)
    sample = sample or Case((), step=step).sample
    states: list[State] = ["bad"] * (length // sample + 1)
    block = {
        "interval": f"{sample}m",
        "input_series": [
            {
                "series": in_cluster(one.selector, name),
                "values": " ".join(one.values(states, sample)),
            }
            for name, cluster in clusters.items()
            for one in cluster.series
        ],
        "promql_expr_test": [
            question for name, one in clusters.items() for question in _questions(name, one.checks)
        ],
    }
    return said_against(folder, promtool, groups, block, f"{step}m", clusters)


def rules_of(names: Iterable[str]) -> list[dict]:
    """Return the groups of alerts, and those of the records that they need."""
    wanted = set(names)
    alerts = [alert for alert in ALERTS if alert.name in wanted]
    assert len(alerts) == len(wanted), wanted
    return [
        *needed(*alerts),
        {"name": "alerts", "rules": [rule(alert, LINKS) for alert in alerts]},
    ]


def _questions(cluster: str, checks: Iterable[Check]) -> Iterator[dict]:
    for name, minute, count in checks:
        firing = f'ALERTS{{alertname="{name}",alertstate="firing",{of_cluster(cluster)}}}'
        yield {
            "expr": f"count({firing}) or vector(0)",
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": "{}", "value": count}],
        }


def said_against(
    folder: Path,
    promtool: str,
    groups: Sequence[dict],
    block: Mapping,
    interval: str,
    clusters: Iterable[str],
) -> Mapping[str, str]:
    """Let promtool read one test, and return what it says against each cluster."""
    done = rules_tried(folder, promtool, groups, [block], interval)
    failed = (done.stdout + done.stderr).split("expr: ")[1:]
    assert failed or done.returncode == 0, done.stdout + done.stderr
    return {
        cluster: "".join(one for one in failed if of_cluster(cluster) in one.replace("\\", ""))
        for cluster in clusters
    }


def none_fires(
    folder: Path,
    promtool: str,
    clusters: Mapping[str, tuple[Sequence[Series], Sequence[str]]],
    hours: int,
) -> Mapping[str, str]:
    """Let promtool see that of all alerts only the one that always fires does, once for all.

    Args:
        folder: where to write the rules.
        promtool: the program.
        clusters: the series of each, and the alerts that do not count there.
        hours: how long that is looked at, every half an hour.

    Returns:
        For each cluster, what promtool has to say against it; "" is what belongs to no cluster.
    """
    groups = [
        *all_records(),
        {"name": "alerts", "rules": [rule(alert, LINKS) for alert in ALERTS]},
    ]
    always = [{"labels": '{alertname="RankscopeWatchdog"}', "value": 1}]
    expected = {name: ("|".join(but), []) for name, (_, but) in clusters.items()}
    expected |= {"": ("", always)}
    states: list[State] = ["good"] * (hours * 60 // 2)
    block = {
        "interval": "2m",
        "input_series": [
            {"series": in_cluster(one.selector, name), "values": " ".join(one.values(states, 2))}
            for name, (series, _) in clusters.items()
            for one in series
        ],
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{{of_cluster(name)},alertname!~"{but}"}})',
                "eval_time": f"{minute}m",
                "exp_samples": wanted,
            }
            for name, (but, wanted) in expected.items()
            for minute in range(0, hours * 60, 30)
        ],
    }
    return said_against(folder, promtool, groups, block, "4m", expected)


def all_records() -> list[dict]:
    """Return all groups of recording rules."""
    return [
        {"name": one.name, "rules": [recording(record) for record in one.records]}
        for one in recording_rules.GROUPS
    ]
