"""What sums of the watch say of a week: after outages, and with pods that begin them again."""

from collections.abc import Callable, Sequence

import pytest

from alert_timelines import Case, Series
from clusters_apart import Followed, follow_together, of_alert
from named_alerts import BY_NAME
from promtool_tests import follow
from servers import require_server

DAY = 1440
COUNTED = "rankscope_job_completions_total"
RECOVERED = 'job_class="",interruption="restart"'


def counted(selector: str, minutes: Callable[[int], float | None]) -> Series:
    """Return a sum by its value at each minute; None is when nothing was scraped."""

    def values(states: Sequence[str], step: int) -> list[str]:
        found = (minutes(i * step) for i in range(len(states)))
        return ["stale" if one is None else f"{one:.0f}" for one in found]

    return Series(selector, values)


def test_an_outage_of_hours_a_week_ago_is_no_reason_to_count_what_was_before_it(tmp_path):
    """Months ago 500 jobs of 1,000 failed; since then 100 succeed a day, and none fails."""
    kind = 'job_namespace="team",job_class="batch"'

    def ends(first: float, daily: float) -> Callable[[int], float | None]:
        away = range(3 * DAY, 3 * DAY + 300)
        return lambda minute: None if minute in away else first + daily * minute / DAY

    series = (
        counted(f'{COUNTED}{{{kind},outcome="succeeded",cause=""}}', ends(500, 100)),
        counted(f'{COUNTED}{{{kind},outcome="failed",cause="image"}}', ends(500, 0)),
    )
    checks = [(10 * DAY + minute, 0) for minute in (-60, 60, 120, 180, 240, 300, 420, 600)]
    done = follow(
        *(tmp_path, require_server("promtool"), BY_NAME["RankscopeObjectiveMissed"]),
        *(Case(series, step=60), 10 * DAY + 600, checks),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_recoveries_count_from_the_moment_on_that_another_pod_counts_them(tmp_path):
    """One pod counted 60, one of them late; from day 8 on another counts 10 a day, all late."""

    def pod(name: str, metric: str, minutes: Callable[[int], float | None]) -> Series:
        return counted(f'{metric}{{{RECOVERED},pod="{name}"}}', minutes)

    def second(minute: int) -> float | None:
        return (minute - 8 * DAY) // (DAY // 10) if minute > 8 * DAY else None

    every, late = "rankscope_recovery_duration_seconds_count", "rankscope_recoveries_late_total"
    series = (
        pod("a", every, lambda minute: 60 if minute < 8 * DAY else None),
        pod("a", late, lambda minute: 1 if minute < 8 * DAY else None),
        pod("b", every, second),
        pod("b", late, second),
    )
    checks = [(8 * DAY - 120, 0), *((day * DAY, 1) for day in (9, 10, 12, 14, 15))]
    done = follow(
        *(tmp_path, require_server("promtool"), BY_NAME["RankscopeRecoverySlow"]),
        *(Case(series, step=60), 15 * DAY, checks),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def few_were_late(late: int, several: int, fires: int) -> Followed:
    """Return a cluster with so many recoveries since minute 30."""

    def since_minute_thirty(selector: str, number: int) -> Series:
        return counted(f"{selector}{{{RECOVERED}}}", lambda at: number if at >= 30 else None)

    series = (
        since_minute_thirty("rankscope_recovery_duration_seconds_count", several),
        since_minute_thirty("rankscope_recoveries_late_total", late),
    )
    return of_alert("RankscopeRecoverySlow", series, [(20, 0), (60, fires), (240, fires)])


RECOVERIES = {
    f"{late} of {several} late": few_were_late(late, several, fires)
    for late, several, fires in (
        *((1, 1, 0), (1, 10, 0), (2, 2, 0), (3, 30, 0)),
        *((3, 3, 1), (3, 10, 1), (8, 80, 1), (40, 900, 0)),
    )
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What promtool has to say against each."""
    return follow_together(
        tmp_path_factory.mktemp("rules"), require_server("promtool"), RECOVERIES, step=5
    )


@pytest.mark.parametrize("recoveries", RECOVERIES)
def test_recoveries_are_slow_if_more_than_a_few_and_more_than_by_chance_were_late(recoveries, said):
    assert not said[recoveries]
