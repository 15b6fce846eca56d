"""Unit tests of alerts as promtool takes them: what must fire when, and what must not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from alert_timelines import Case, Series, State, in_cluster, of_cluster
from rankscope_dashboards.rules import recording_rules
from rankscope_dashboards.rules.alerts.alert import Alert
from rankscope_dashboards.rules.rule_files import Links, recording, rule

LINKS = Links(paging_namespaces=("team", "of-others"))
"""Rules of a cluster in which the jobs of two namespaces may page."""

PATIENCE_SECONDS = 600.0
"""Beside much else promtool takes minutes for what it does in one second; nobody waits if not."""

_UNITS = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440}


def minutes(duration: str) -> int:
    return int(int(duration[:-1]) * _UNITS[duration[-1]])


def _steps(length: int, step: int) -> int:
    return -(-length // step)


def _values(one: Series, states: Sequence[State], case: Case) -> str:
    sampled = [state for state in states for _ in range(case.step // case.sample)]
    return " ".join(one.values(sampled, case.sample))


def _block(
    case: Case,
    states: Sequence[State],
    checks: Iterable[tuple[int, int]],
    name: str,
    cluster: str | None = None,
) -> dict:
    """Return one of promtool's tests.

    Args:
        case: its series and steps.
        states: what it goes through.
        checks: pairs of minute and number of firing alerts.
        name: the alert's.
        cluster: which the series get, and whose alerts count; None leaves and counts all.
    """
    one_of = "" if cluster is None else f",{of_cluster(cluster)}"
    firing = f'count(ALERTS{{alertname="{name}",alertstate="firing"{one_of}}}) or vector(0)'
    return {
        "interval": f"{case.sample}m",
        "input_series": [
            {
                "series": in_cluster(one.selector, cluster or ""),
                "values": _values(one, states, case),
            }
            for one in case.series
        ],
        "promql_expr_test": [
            {
                "expr": firing,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": count}],
            }
            for minute, count in checks
        ],
    }


def _fires(case: Case, alert: Alert, expected: dict | None) -> dict:
    """Fires when it must, not before, goes on firing for `keep`, and ends."""
    hold, keep = minutes(alert.hold), minutes(alert.keep)
    step = case.step
    linger = case.lag if case.linger is None else case.linger
    bad = _bad(case, alert)
    after = _steps(keep + linger, step) + _steps(4 * case.sample, step)
    settle = _steps(case.settle, step)
    states = ["good"] * settle + ["bad"] * bad + ["good"] * after
    firing_at = (settle + bad - 1) * step
    checks = [(firing_at, case.alerts)]
    if settle:
        checks.append(((settle - 1) * step, 0))
    if hold >= 2 * step:
        checks.append((settle * step + hold - step, 0))
    if keep >= 2 * step:
        checks.append((firing_at + keep - step, case.alerts))
    if case.ends:
        checks.append(((len(states) - 1) * step, 0))
    block = _block(case, states, checks, alert.name, _cluster(case, ""))
    if expected is not None:
        wanted = [
            {"exp_labels": one["labels"], "exp_annotations": one["annotations"]} for one in expected
        ]
        block["alert_rule_test"] = [
            {"eval_time": f"{firing_at}m", "alertname": alert.name, "exp_alerts": wanted}
        ]
    return block


def _stays_silent(case: Case, alert: Alert) -> dict:
    """Never fires just below the limit."""
    length = _steps(minutes(alert.hold) + case.lag, case.step) + 5
    settle = _steps(case.settle, case.step)
    states = ["good"] * settle + ["below"] * length
    checks = [((settle + i) * case.step, 0) for i in range(0, length, max(1, length // 6))]
    checks.append(((settle + length - 1) * case.step, 0))
    return _block(case, states, checks, alert.name, _cluster(case, "below"))


def _flaps(case: Case, alert: Alert) -> dict:
    """Fires all the time while the condition comes and goes: one notification.

    That begins when `_fires` has seen what it does, so that only one alert fires until then.
    """
    keep = minutes(alert.keep)
    gap = case.gap if case.gap is not None else min(keep // 2, keep - case.lag - 2)
    pause = max(1, _steps(gap, case.step))
    again = _steps(case.lag if case.again is None else case.again, case.step)
    again += _steps(2 * case.sample, case.step)
    settle = _steps(case.settle, case.step)
    bad = _bad(case, alert)
    settle += 0 if _apart(case) else bad
    states = ["good"] * settle + ["bad"] * bad + (["good"] * pause + ["bad"] * again) * 4
    first = settle + bad - 1
    checks = [(i * case.step, case.alerts) for i in range(first, len(states))]
    return _block(case, states, checks, alert.name, _cluster(case, "flaps"))


def _bad(case: Case, alert: Alert) -> int:
    """Return after how many steps of bad an alert fires for sure."""
    noticed = _steps(minutes(alert.hold) + case.lag, case.step)
    return noticed + _steps(3 * case.sample, case.step)


def _apart(case: Case) -> bool:
    """Return whether a case cannot begin later in one cluster than in another."""
    named = any("cluster=" in one.selector for one in case.series)
    return named or not case.settle or case.remembers


def _cluster(case: Case, name: str) -> str | None:
    return None if _apart(case) else name


def _together(blocks: Iterable[dict]) -> dict:
    """Return one test of what happens in several clusters at once."""
    first, *others = blocks
    lists = ("input_series", "promql_expr_test")
    return first | {one: [*first[one], *(x for b in others for x in b[one])] for one in lists}


def needed(*alerts: Alert) -> list[dict]:
    """Return the groups of recording rules that alerts need, directly or by others."""
    records = [one for group in recording_rules.GROUPS for one in group.records]
    wanted, texts = set(), [text for one in alerts for text in (one.expression, one.description)]
    while texts:
        text = texts.pop()
        found = {one.name for one in records if one.name in text} - wanted
        wanted |= found
        texts += [one.expression for one in records if one.name in found]
    groups = []
    for group in recording_rules.GROUPS:
        rules = [recording(one) for one in group.records if one.name in wanted]
        if rules:
            groups.append({"name": group.name, "rules": rules})
    return groups


def tried(folder: Path, promtool: str) -> subprocess.CompletedProcess[str]:
    """Let promtool read `test.yaml`, in one thread and without collecting garbage below a limit.

    It lives for less than a second, a fifth of which was collections and threads that wait.
    """
    return subprocess.run(
        [promtool, "test", "rules", "test.yaml"],
        cwd=folder,
        env=os.environ | {"GOGC": "off", "GOMEMLIMIT": "512MiB", "GOMAXPROCS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def rules_tried(
    folder: Path, promtool: str, groups: Sequence[dict], tests: Sequence[Mapping], interval: str
) -> subprocess.CompletedProcess[str]:
    """Let promtool try rules.

    Args:
        folder: where to write the rules and the tests.
        promtool: the program.
        groups: of rules, in the order in which they are evaluated.
        tests: of these rules.
        interval: between two evaluations.
    """
    (folder / "rules.yaml").write_text(json.dumps({"groups": groups}))
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": interval,
        "group_eval_order": [group["name"] for group in groups],
        "tests": tests,
    }
    (folder / "test.yaml").write_text(json.dumps(test))
    return tried(folder, promtool)


def run(
    folder: Path,
    promtool: str,
    alert: Alert,
    case: Case,
    expected: Sequence[dict] | None,
    links: Links = LINKS,
) -> subprocess.CompletedProcess[str]:
    """Let promtool try an alert."""
    groups = [*needed(alert), {"name": "alert", "rules": [rule(alert, links)]}]
    blocks = [_fires(case, alert, expected)]
    if case.has_below:
        blocks.append(_stays_silent(case, alert))
    if alert.keep != "0s":
        blocks.append(_flaps(case, alert))
    tests = blocks if _apart(case) else [_together(blocks)]
    return rules_tried(folder, promtool, groups, tests, f"{case.step}m")


def follow(
    folder: Path,
    promtool: str,
    alert: Alert,
    case: Case,
    length: int,
    checks: Iterable[tuple[int, int]],
) -> subprocess.CompletedProcess[str]:
    """Let promtool see when an alert fires while its series are bad all the time.

    Args:
        folder: where to write the rules.
        promtool: the program.
        alert: what is tried.
        case: its series and steps.
        length: minutes that are looked at.
        checks: pairs of minute and number of firing alerts.
    """
    groups = [*needed(alert), {"name": "alert", "rules": [rule(alert, LINKS)]}]
    states: list[State] = ["bad"] * (length // case.step + 1)
    block = _block(case, states, checks, alert.name)
    return rules_tried(folder, promtool, groups, [block], f"{case.step}m")
