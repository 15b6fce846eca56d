"""Unit tests for alerts, as promtool takes them: what a case's series do over time, and what must
fire when.

`python tests/alert_timelines.py` writes fixtures/alerts/texts.json anew, for review by eye.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rankscope_dashboards.rules import recording_rules
from rankscope_dashboards.rules.alerts.alert import Alert
from rankscope_dashboards.rules.rule_files import Links, rule

TEXTS = Path(__file__).parent / "fixtures/alerts/texts.json"

State = Literal["good", "bad", "below"]
Values = Callable[[Sequence[State], int], list[str]]

LINKS = Links(paging_namespaces=("team", "of-others"))
"""Rules of a cluster in which the jobs of two namespaces may page."""

SAMPLE_MINUTES = 5
"""The most between two samples: Prometheus takes a series for gone when its last is older."""

PATIENCE_SECONDS = 600.0
"""Beside much else promtool takes minutes for what it does in one second; nobody waits if not."""

_UNITS = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440}


def minutes(duration: str) -> int:
    return int(int(duration[:-1]) * _UNITS[duration[-1]])


@dataclass(frozen=True, slots=True)
class Series:
    """One input series.

    Args:
        selector: name and labels.
        values: gives promtool's notation of its value at each step, from the states of the steps
            and their length in minutes.
    """

    selector: str
    values: Values


def gauge(
    selector: str, bad: float | None, good: float | None, below: float | None = None
) -> Series:
    """Return a series with one value per state; None is a series that is not there."""
    of = {"bad": bad, "good": good, "below": below}

    def values(states: Sequence[State], _step: int) -> list[str]:
        texts, last = [], None
        for state in states:
            value = of[state]
            gone = "stale" if last is not None else "_"
            texts.append(gone if value is None else f"{value:.10g}")
            last = value
        return texts

    return Series(selector, values)


def steady(selector: str, value: float = 1) -> Series:
    return gauge(selector, value, value, value)


def counter(
    selector: str, bad: float, good: float = 0, below: float = 0, start: float = 0
) -> Series:
    """Return a counter with one increase per minute and state; `start` is its first value."""
    of = {"bad": bad, "good": good, "below": below}

    def values(states: Sequence[State], step: int) -> list[str]:
        total, texts = start, []
        for state in states:
            texts.append(f"{total:.10g}")
            total += of[state] * step
        return texts

    return Series(selector, values)


def born(selector: str) -> Series:
    """Return a counter that appears as 1 when it is first needed, and stays."""

    def values(states: Sequence[State], _step: int) -> list[str]:
        first = states.index("bad") if "bad" in states else len(states)
        return ["_" if i < first else "1" for i in range(len(states))]

    return Series(selector, values)


def event(selector: str, *, below: bool = False) -> Series:
    """Return a timestamp that follows the clock while it is bad, and stands after that.

    Args:
        selector: name and labels.
        below: it follows the clock below the limit as well.
    """
    follows = {"bad", "below"} if below else {"bad"}

    def values(states: Sequence[State], step: int) -> list[str]:
        texts, last = [], None
        for i, state in enumerate(states):
            last = i * step * 60 if state in follows else last
            texts.append("_" if last is None else str(last))
        return texts

    return Series(selector, values)


def heartbeat(selector: str) -> Series:
    """Return a timestamp that follows the clock while it is good, and stands while it is not."""

    def values(states: Sequence[State], step: int) -> list[str]:
        texts, last = [], 0
        for i, state in enumerate(states):
            last = i * step * 60 if state != "bad" else last
            texts.append(str(last))
        return texts

    return Series(selector, values)


def clock(selector: str) -> Series:
    """Return a timestamp that follows the clock whatever happens."""

    def values(states: Sequence[State], step: int) -> list[str]:
        return [str(i * step * 60) for i in range(len(states))]

    return Series(selector, values)


@dataclass(frozen=True, slots=True)
class Case:
    """How an alert is tried.

    Args:
        series: what the rules see.
        lag: minutes until ranges in the expression have noticed.
        linger: minutes until they have forgotten; None takes `lag`.
        settle: minutes before anything happens.
        step: minutes between two evaluations of the rules, and between two samples up to
            `SAMPLE_MINUTES`.
        gap: minutes of good in between when it flaps; None takes half of `keep`, or what `lag`
            leaves of it.
        again: minutes of bad in between when it flaps; None takes `lag` and a little.
        alerts: how many fire.
        has_below: the series have a state just below the limit.
        ends: the alert ends when all is good again.
    """

    series: tuple[Series, ...]
    lag: int = 0
    linger: int | None = None
    settle: int = 10
    step: int = 1
    gap: int | None = None
    again: int | None = None
    alerts: int = 1
    has_below: bool = True
    ends: bool = True

    @property
    def sample(self) -> int:
        """Minutes between two samples."""
        return self.step // -(-self.step // SAMPLE_MINUTES)


def _steps(length: int, step: int) -> int:
    return -(-length // step)


def _values(one: Series, states: Sequence[State], case: Case) -> str:
    sampled = [state for state in states for _ in range(case.step // case.sample)]
    return " ".join(one.values(sampled, case.sample))


def _block(case: Case, states: Sequence[State], checks: Iterable[tuple[int, int]], name: str):
    """Return one of promtool's tests; checks are pairs of minute and number of firing alerts."""
    firing = f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)'
    return {
        "interval": f"{case.sample}m",
        "input_series": [
            {"series": one.selector, "values": _values(one, states, case)} for one in case.series
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
    bad = _steps(hold + case.lag, step) + _steps(3 * case.sample, step)
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
    block = _block(case, states, checks, alert.name)
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
    return _block(case, states, [*checks, ((settle + length - 1) * case.step, 0)], alert.name)


def _flaps(case: Case, alert: Alert) -> dict:
    """Fires all the time while the condition comes and goes: one notification."""
    keep = minutes(alert.keep)
    gap = case.gap if case.gap is not None else min(keep // 2, keep - case.lag - 2)
    pause = max(1, _steps(gap, case.step))
    again = _steps(case.lag if case.again is None else case.again, case.step)
    again += _steps(2 * case.sample, case.step)
    settle = _steps(case.settle, case.step)
    bad = _steps(minutes(alert.hold) + case.lag, case.step) + _steps(3 * case.sample, case.step)
    states = ["good"] * settle + ["bad"] * bad + (["good"] * pause + ["bad"] * again) * 4
    first = settle + bad - 1
    checks = [(i * case.step, case.alerts) for i in range(first, len(states))]
    return _block(case, states, checks, alert.name)


def _needed(alert: Alert) -> list[dict]:
    """Return the groups of recording rules that an alert needs, directly or by others."""
    known = {one.name: one for group in recording_rules.GROUPS for one in group.records}
    wanted, texts = set(), [alert.expression, alert.description]
    while texts:
        text = texts.pop()
        for name, one in known.items():
            if name in text and name not in wanted:
                wanted.add(name)
                texts.append(one.expression)
    groups = []
    for group in recording_rules.GROUPS:
        rules = [
            {"record": one.name, "expr": one.expression}
            for one in group.records
            if one.name in wanted
        ]
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


def run(
    folder: Path,
    promtool: str,
    alert: Alert,
    case: Case,
    expected: Sequence[dict] | None,
    links: Links = LINKS,
) -> subprocess.CompletedProcess[str]:
    """Let promtool try an alert."""
    groups = [*_needed(alert), {"name": "alert", "rules": [rule(alert, links)]}]
    (folder / "rules.yaml").write_text(json.dumps({"groups": groups}))
    blocks = [_fires(case, alert, expected)]
    if case.has_below:
        blocks.append(_stays_silent(case, alert))
    if alert.keep != "0s":
        blocks.append(_flaps(case, alert))
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{case.step}m",
        "group_eval_order": [group["name"] for group in groups],
        "tests": blocks,
    }
    (folder / "test.yaml").write_text(json.dumps(test))
    return tried(folder, promtool)


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
    groups = [*_needed(alert), {"name": "alert", "rules": [rule(alert, LINKS)]}]
    (folder / "rules.yaml").write_text(json.dumps({"groups": groups}))
    states: list[State] = ["bad"] * (length // case.step + 1)
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{case.step}m",
        "group_eval_order": [group["name"] for group in groups],
        "tests": [_block(case, states, checks, alert.name)],
    }
    (folder / "test.yaml").write_text(json.dumps(test))
    return tried(folder, promtool)


def run_all(
    folder: Path,
    promtool: str,
    alerts: Sequence[Alert],
    series: Sequence[Series],
    hours: int,
    step: int = 2,
) -> subprocess.CompletedProcess[str]:
    """Let promtool see that of all alerts only the one that always fires does."""
    groups = [
        {
            "name": group.name,
            "rules": [{"record": r.name, "expr": r.expression} for r in group.records],
        }
        for group in recording_rules.GROUPS
    ]
    groups.append({"name": "alerts", "rules": [rule(alert, LINKS) for alert in alerts]})
    (folder / "rules.yaml").write_text(json.dumps({"groups": groups}))
    names = "count by (alertname) (ALERTS)"
    states: list[State] = ["good"] * (hours * 60 // step)
    checks = [
        {
            "expr": names,
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": '{alertname="RankscopeWatchdog"}', "value": 1}],
        }
        for minute in range(0, hours * 60, 30)
    ]
    block = {
        "interval": f"{step}m",
        "input_series": [
            {"series": one.selector, "values": " ".join(one.values(states, step))} for one in series
        ],
        "promql_expr_test": checks,
    }
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{step}m",
        "group_eval_order": [group["name"] for group in groups],
        "tests": [block],
    }
    (folder / "test.yaml").write_text(json.dumps(test))
    return tried(folder, promtool)


_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


def texts_of(output: str) -> Iterator[dict]:
    """Yield the alerts that promtool got where it expected none."""
    for labels, texts in re.findall(r"Labels:\{(.*)\}\n\s*Annotations:\{(.*)\}", output):
        yield {
            "labels": {
                key: json.loads(value) for key, value in _PAIR.findall(labels) if key != "alertname"
            },
            "annotations": {key: json.loads(value) for key, value in _PAIR.findall(texts)},
        }


def main() -> None:
    """Write the texts that alerts have now."""
    import tempfile

    from alert_cases import CASES
    from rankscope_dashboards.rules.alerts import ALERTS

    found = {}
    for alert in ALERTS:
        with tempfile.TemporaryDirectory() as folder:
            case = CASES[alert.name]
            done = run(Path(folder), "promtool", alert, case, [])
            found[alert.name] = list(texts_of(done.stdout + done.stderr))
    TEXTS.parent.mkdir(exist_ok=True)
    TEXTS.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
