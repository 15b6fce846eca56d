"""A watch that runs and can read nothing: what it exports, and the alerts that say so."""

from collections.abc import Iterator, Sequence

import pytest

from alert_series import FINE, NODE, OWNER, PEERS, busy
from alert_timelines import Case, Series, clock, steady
from clusters_apart import Followed, follow_together, of_alert
from named_alerts import BY_NAME, fixed
from promtool_tests import follow
from rankscope_agent.contract.metrics import watch as metrics
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.watch.series import WatchSeries
from servers import require_server

DAY = 1440


def value(watch: WatchSeries, metric: Metric) -> float | None:
    return next((one.value for one in watch.samples() if one.metric is metric), None)


def exported(metric: Metric, minutes: int, read: range, shard: str = "") -> Series:
    """Return a series of a watch that evaluates every minute and can read data in some of them."""

    def made() -> Iterator[str]:
        watch = WatchSeries()
        for minute in range(minutes):
            if minute in read:
                watch.update((), minute * 60.0)
            else:
                watch.fail(minute * 60.0)
            known = value(watch, metric)
            yield "stale" if known is None else f"{known:.10g}"

    values = list(made())

    def sampled(_states: Sequence[str], step: int) -> list[str]:
        return values[::step]

    return Series(f'{metric.name}{{{shard or NO_SHARD},pod="b"}}', sampled)


NO_SHARD = 'shard="0",shards="1"'
WATCH_SERIES = (metrics.WATCH_LAST, metrics.WATCH_UNREAD_SINCE)


def test_a_watch_says_since_when_it_can_read_nothing():
    watch = WatchSeries()
    assert value(watch, metrics.WATCH_JOBS) is None
    for now in (1000.0, 1030.0):
        watch.fail(now)
        assert value(watch, metrics.WATCH_UNREAD_SINCE) == 1000.0
        assert value(watch, metrics.WATCH_JOBS) is None
    # Steps of some jobs are not the pages of agents.
    watch.update((), 1040.0, None)
    assert value(watch, metrics.WATCH_UNREAD_SINCE) == 1000.0
    watch.update((), 1060.0)
    assert value(watch, metrics.WATCH_UNREAD_SINCE) is None
    assert value(watch, metrics.WATCH_JOBS) == 0
    watch.fail(1090.0)
    assert value(watch, metrics.WATCH_UNREAD_SINCE) == 1090.0
    assert value(watch, metrics.WATCH_JOBS) is None


def blind(read: range) -> Followed:
    """Return the cluster of a watch that can read nothing but in some of the first minutes."""
    series = tuple(exported(one, 2 * DAY, read) for one in WATCH_SERIES)
    began = read.stop
    checks = [(began + 5, 0), (began + 15, 1), (DAY, 1), (DAY + 90, 1), (2 * DAY - 5, 1)]
    return of_alert("RankscopeWatchLagging", series, checks)


def taken_over() -> Followed:
    """Return the cluster of a watch that can read nothing after a rollout at minute 60."""

    def until_then(_states: Sequence[str], step: int) -> list[str]:
        return [f"{60 * minute}" if minute < 60 else "stale" for minute in range(0, 70, step)]

    before = Series(f'{metrics.WATCH_LAST.name}{{{NO_SHARD},pod="a"}}', until_then)
    ones = [exported(one, 2 * DAY, range(0)) for one in WATCH_SERIES]
    series = (before, *(fixed_from(one, 61) for one in ones))
    checks = [(50, 0), (75, 1), (DAY, 1), (DAY + 90, 1), (2 * DAY - 5, 1)]
    return of_alert("RankscopeWatchLagging", series, checks)


def fixed_from(series: Series, first: int) -> Series:
    """Return a series that is not there before a minute."""

    def values(states: Sequence[str], step: int) -> list[str]:
        whole = series.values(states, step)
        return ["_" if i * step < first else one for i, one in enumerate(whole)]

    return Series(series.selector, values)


BLIND = {
    "never read": lambda: blind(range(0)),
    "read once": lambda: blind(range(20)),
    "takes over": taken_over,
}


@pytest.fixture(scope="module")
def said_of_days(tmp_path_factory):
    """What promtool has to say against watches that can read nothing for two days."""
    clusters = {name: made() for name, made in BLIND.items()}
    folder = tmp_path_factory.mktemp("rules")
    return follow_together(folder, require_server("promtool"), clusters, step=5, sample=1)


@pytest.mark.parametrize("watch", BLIND)
def test_a_watch_that_can_read_nothing_is_missed_for_as_long_as_it_is_there(watch, said_of_days):
    """After a day, what another pod evaluated before it is forgotten."""
    assert not said_of_days[watch]


def test_a_watch_that_shares_the_jobs_of_one_that_reads_is_missed(tmp_path):
    shards = 'shard="1",shards="2"'
    series = (
        clock(f'{metrics.WATCH_LAST.name}{{shard="0",shards="2",pod="a"}}'),
        exported(metrics.WATCH_UNREAD_SINCE, 60, range(0), shards),
    )
    done = follow(
        *(tmp_path, require_server("promtool"), BY_NAME["RankscopeWatchLagging"]),
        *(Case(series), 40, [(4, 0), (15, 1), (40, 1)]),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_of_two_watches_of_the_same_jobs_is_enough(tmp_path):
    series = (
        clock(f'{metrics.WATCH_LAST.name}{{{NO_SHARD},pod="a"}}'),
        exported(metrics.WATCH_UNREAD_SINCE, 60, range(0)),
    )
    done = follow(
        *(tmp_path, require_server("promtool"), BY_NAME["RankscopeWatchLagging"]),
        *(Case(series), 40, [(4, 0), (15, 0), (40, 0)]),
    )
    assert done.returncode == 0, done.stdout + done.stderr


JUDGED = steady('rankscope_job_unobserved{job_id="team/llm",pod="b"}', 0)
LAST = f'{metrics.WATCH_LAST.name}{{{NO_SHARD},pod="b"}}'
STOPPED = Series(LAST, lambda states, step: [f"{min(30, i * step) * 60}" for i in range(999)])
READS = clock(LAST)


def slow(seen: tuple[Series, ...], fires: int) -> Followed:
    """Return a cluster with a straggler, and what is seen of a watch."""
    states = ["bad"] * 200
    ranks = (*busy("13", NODE, (1.6, 1.05, 1.2), FINE), *PEERS, OWNER)
    series = (*(fixed(one, states) for one in ranks), *seen)
    return of_alert("RankscopeStraggler", series, [(60, fires), (180, fires)])


WATCHED = {
    "judged": slow((READS, JUDGED), 0),
    "page of long ago": slow((STOPPED, JUDGED), 1),
    "reads nothing": slow((STOPPED,), 1),
    "reads other jobs": slow((READS,), 1),
}


@pytest.fixture(scope="module")
def said_of_stragglers(tmp_path_factory):
    return follow_together(
        tmp_path_factory.mktemp("rules"), require_server("promtool"), WATCHED, step=2
    )


@pytest.mark.parametrize("watch", WATCHED)
def test_a_straggler_of_a_job_that_the_watch_does_not_judge_is_found_without_it(
    watch, said_of_stragglers
):
    assert not said_of_stragglers[watch]
