"""Series of alerts over time, as promtool reads them, and how an alert is tried with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["good", "bad", "below"]
Values = Callable[[Sequence[State], int], list[str]]

SAMPLE_MINUTES = 5
"""The most between two samples: Prometheus takes a series for gone when its last is older."""


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


def event(selector: str, *, below: bool = False, bad: bool = True) -> Series:
    """Return a timestamp that follows the clock while it is bad, and stands after that.

    Args:
        selector: name and labels.
        below: it follows the clock below the limit as well.
        bad: False if it does so only there.
    """
    follows = {state for state, does in (("bad", bad), ("below", below)) if does}

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


def of_cluster(name: str) -> str:
    return f'cluster="{name}"'


def in_cluster(series: str, cluster: str) -> str:
    """Return a series' name and labels with that of its cluster, of which "" is none."""
    name, _, labels = series.partition("{")
    both = ",".join(one for one in (of_cluster(cluster), labels.removesuffix("}")) if one)
    return f"{name}{{{both}}}" if cluster else series


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
        remembers: what was good before counts for days, so that it must not have been for longer.
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
    remembers: bool = False

    @property
    def sample(self) -> int:
        """Minutes between two samples."""
        return self.step // -(-self.step // SAMPLE_MINUTES)
