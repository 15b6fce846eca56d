"""The alert about a slow rank without a watch, or one that leaves, hangs, or has a wrong clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from alert_series import JOB, NODE, OTHER, PEERS, busy, finding
from alert_timelines import Series, in_cluster, of_cluster, steady
from clusters_apart import rules_of, said_against
from named_alerts import fixed
from servers import require_server

MINUTES, LEAVES, RETURNS = 130, 30, 90
HOUR_SECONDS = 3600
WATCH_LAST = "rankscope_watch_last_evaluation_timestamp_seconds"
WATCHING = (
    *finding("gpu_compute", "gpu_compute", 0.3).series,
    steady(f"rankscope_job_unobserved{{{JOB}}}"),
)
SLOW, FINE = (1.6, 1.6, 1.6), (1.0, 1.0, 1.0)


def there(series: Series, during: Callable[[int], bool]) -> Series:
    """Return a series that is scraped in some minutes only."""

    def values(states: Sequence[str], step: int) -> list[str]:
        given = series.values(states, step)
        return [one if during(i * step) else "stale" for i, one in enumerate(given)]

    return Series(series.selector, values)


def told(seconds: Callable[[int], float]) -> Series:
    """Return when the watch says, in each minute, that it evaluated last."""
    return Series(
        WATCH_LAST, lambda states, step: [f"{seconds(i * step)}" for i in range(len(states))]
    )


def away(minute: int) -> bool:
    return LEAVES <= minute < RETURNS


def watched(last: Series) -> tuple[Series, ...]:
    others = [one for one in WATCHING if one.selector != WATCH_LAST]
    return (*(fixed(one, ["bad"] * (MINUTES + 1)) for one in others), last)


def left(*series: Series) -> tuple[Series, ...]:
    return tuple(there(one, lambda minute: not away(minute)) for one in series)


def in_turn(ranks: Sequence[str], node: str, slowest: float, median: float) -> tuple[Series, ...]:
    """Return what an agent says of ranks of which another is the slowest each minute."""
    busy_node, _ = busy("", node, SLOW, (median, median, median))

    def turn_of(number: int) -> Callable[[int], bool]:
        return lambda minute: minute % len(ranks) == number

    ones = (busy(rank, node, (slowest, slowest, slowest), FINE)[1] for rank in ranks)
    return (busy_node, *(there(one, turn_of(number)) for number, one in enumerate(ones)))


def taking_turns(selectors: Sequence[Series]) -> tuple[Series, ...]:
    """Return series of which another is the largest each minute."""

    def larger(number: int) -> Callable[[Sequence[str], int], list[str]]:
        return lambda states, step: [
            "1.65" if i * step % len(selectors) == number else "1.6" for i in range(len(states))
        ]

    return tuple(Series(one.selector, larger(number)) for number, one in enumerate(selectors))


def of_target(one: Series, instance: str) -> Series:
    """Return a series with the label of its scrape."""
    name, _, labels = one.selector.partition("{")
    return replace(
        one, selector=f'{name}{{instance="{instance}"{"," * bool(labels)}{labels or "}"}'
    )


ON_TIME = told(lambda minute: minute * 60)
RANK_13 = busy("13", NODE, SLOW, FINE)
RANK_21 = busy("21", OTHER, SLOW, FINE)
TOGETHER = in_turn([f"{rank}" for rank in range(8, 16)], NODE, 1.65, 1.6)
SOME = in_turn(("8", "13", "15"), NODE, 1.65, 1.0)
ODD = (
    RANK_13[0],
    there(RANK_13[1], lambda minute: minute not in (40, 44)),
    there(busy("9", NODE, SLOW, FINE)[1], lambda minute: minute in (40, 44)),
)
CLUSTERS = {
    "leaves": (*left(*watched(ON_TIME)), *RANK_13),
    "behind": (
        *watched(told(lambda minute: minute * 60 - HOUR_SECONDS * away(minute))),
        *RANK_13,
    ),
    "ahead": (
        *watched(told(lambda minute: minute * 60 + HOUR_SECONDS * away(minute))),
        *RANK_13,
    ),
    "hangs": (*watched(told(lambda minute: 60 * min(minute, LEAVES))), *RANK_13),
    "hangs beside another": (
        of_target(WATCHING[-1], "a"),
        of_target(told(lambda minute: 60 * min(minute, LEAVES)), "a"),
        of_target(ON_TIME, "b"),
        *RANK_13,
    ),
    "never": RANK_13,
    "other": (
        *(there(one, lambda minute: minute < LEAVES) for one in watched(ON_TIME)),
        RANK_13[0],
        there(RANK_13[1], lambda minute: minute < LEAVES),
        there(busy("21", NODE, SLOW, FINE)[1], lambda minute: minute >= LEAVES),
    ),
    "together": TOGETHER,
    "some in turns": SOME,
    "leaves some in turns": (*left(*watched(ON_TIME)), *SOME),
    "an odd step": ODD,
    "leaves those together": (*left(*watched(ON_TIME)), *TOGETHER),
    "two": (RANK_13[0], RANK_21[0], *taking_turns((RANK_13[1], RANK_21[1]))),
    "well": (
        *(there(one, lambda minute: minute < LEAVES) for one in watched(ON_TIME)),
        *(there(one, lambda minute: minute < LEAVES) for one in RANK_13),
    ),
}
NAMED, UNNAMED = {"gpu_compute": 1, "": 0}, {"gpu_compute": 0, "": 1}
NONE = {"gpu_compute": 0, "": 0}
FIRING = {
    "leaves": [(20, MINUTES, NAMED)],
    "behind": [(20, MINUTES, NAMED)],
    "ahead": [(20, MINUTES, NAMED)],
    "hangs": [(20, MINUTES, NAMED)],
    "hangs beside another": [(10, LEAVES, NONE), (LEAVES + 25, MINUTES, UNNAMED)],
    "never": [(20, MINUTES, UNNAMED)],
    "other": [(20, LEAVES + 15, NAMED), (LEAVES + 20, MINUTES, UNNAMED)],
    "together": [(20, MINUTES, UNNAMED)],
    "some in turns": [(30, MINUTES, UNNAMED)],
    "leaves some in turns": [(20, MINUTES, NAMED)],
    "an odd step": [(20, MINUTES, UNNAMED)],
    "leaves those together": [(20, MINUTES, NAMED)],
    "two": [(20, MINUTES, {"gpu_compute": 0, "": 2})],
    "well": [(20, LEAVES + 15, NAMED), (LEAVES + 20, MINUTES, NONE)],
}
"""From which to which minute how many alerts fire, by the symptom that a watch has named."""


def questions(cluster: str) -> Iterator[dict]:
    for first, end, counts in FIRING[cluster]:
        for symptom, count in counts.items():
            labels = f'alertname="RankscopeStraggler",alertstate="firing",symptom="{symptom}"'
            for minute in range(first, end, 3):
                yield {
                    "expr": f"count(ALERTS{{{labels},{of_cluster(cluster)}}}) or vector(0)",
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": "{}", "value": count}],
                }


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    states = ["bad"] * (MINUTES + 1)
    block = {
        "interval": "1m",
        "input_series": [
            {"series": in_cluster(one.selector, name), "values": " ".join(one.values(states, 1))}
            for name, series in CLUSTERS.items()
            for one in (*series, *PEERS)
        ],
        "promql_expr_test": [one for name in CLUSTERS for one in questions(name)],
    }
    folder, promtool = tmp_path_factory.mktemp("rules"), require_server("promtool")
    return said_against(folder, promtool, rules_of(["RankscopeStraggler"]), block, "1m", CLUSTERS)


@pytest.mark.parametrize("watch", CLUSTERS)
def test_each_straggler_is_one_alert_whatever_becomes_of_the_watch(watch, said):
    assert not said[watch]
