"""Threads, schedules and deadlines of collectors, and the picture that they give together."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from rankscope_agent.collecting import registry as registry_module
from rankscope_agent.collecting.registry import Registry, _Runner, create_registry, next_start
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.sources import BY_COLLECTOR_OR_PART
from rankscope_agent.serving import exposition
from rankscope_agent.settings.command_line import parse_config
from rankscope_agent.sources.collector import NoData

PATIENCE_SECONDS = 20.0  # far above what anything here takes; only a failing test waits that long


class Counting:
    """Gives the number of its runs, and which threads ran it."""

    def __init__(self):
        self.runs = 0
        self.threads = set()

    def collect(self):
        self.runs += 1
        self.threads.add(threading.get_ident())
        yield metrics.RINGS.sample(self.runs)


class Hanging:
    """Hangs in its second run until it is released."""

    def __init__(self):
        self.released = threading.Event()
        self.running = 0
        self.at_most = 0
        self.runs = 0

    def collect(self):
        self.runs += 1
        self.running += 1
        self.at_most = max(self.at_most, self.running)
        if self.runs == 2:
            self.released.wait(PATIENCE_SECONDS)
        self.running -= 1
        yield metrics.RECORDS_CORRUPT.sample(self.runs)


class Raising:
    def collect(self):
        raise OSError("gone")


@pytest.fixture
def started():
    """Start registries, and stop them at the end."""
    registries = []

    def start(interval=0.02, deadline=PATIENCE_SECONDS, **collectors):
        creators = {name: (lambda made=made: made) for name, made in collectors.items()}
        registry = Registry("node", creators, interval, deadline)
        registries.append(registry)
        registry.start()
        return registry

    yield start
    for registry in registries:
        registry.stop()


def scrape_of(registry, name):
    found = [scrape for scrape in registry.snapshot().scrapes if scrape.collector == name]
    return found[0] if found else None


def eventually(condition):
    """Return the first true value of a condition."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError("the condition did not come true")


def test_every_collector_runs_again_and_again_in_a_thread_of_its_own(started):
    one, two = Counting(), Counting()
    started(one=one, two=two)
    eventually(lambda: one.runs >= 3 and two.runs >= 3)
    assert len(one.threads) == len(two.threads) == 1
    assert one.threads.isdisjoint(two.threads | {threading.get_ident()})


def test_the_snapshot_is_the_same_object_until_a_run_ends(started):
    registry = started(interval=3600, one=Counting())
    first = eventually(lambda: registry.snapshot() if registry.snapshot().scrapes else None)
    assert registry.snapshot() is first
    again = started(one=Counting())
    before = again.snapshot()
    eventually(lambda: again.snapshot() is not before)


def test_a_raising_collector_costs_its_own_series_only(started):
    registry = started(bad=Raising(), good=Counting())
    eventually(lambda: scrape_of(registry, "bad") and scrape_of(registry, "good"))
    assert scrape_of(registry, "bad").failure == "OSError: gone"
    assert scrape_of(registry, "good").success


def test_a_bad_sample_is_counted_and_logged_and_fails_no_collector(started, caplog):
    class Repeating:
        def collect(self):
            return [metrics.RECORDS_CORRUPT.sample(1), metrics.RECORDS_CORRUPT.sample(2)]

    registry = started(interval=3600, bad=Repeating(), good=Counting())
    eventually(lambda: scrape_of(registry, "bad") and scrape_of(registry, "good"))
    assert scrape_of(registry, "bad").success
    assert scrape_of(registry, "bad").samples == (metrics.RECORDS_CORRUPT.sample(1),)
    assert "collector bad yields invalid samples: 1 of 2 samples dropped" in caplog.text
    page = exposition.render(registry.snapshot(), exposition.TEXT, None).decode()
    assert 'rankscope_invalid_samples{collector="bad"} 1' in page
    assert 'rankscope_invalid_samples{collector="good"}' not in page


def test_a_collector_without_an_outcome_yet_is_not_in_the_snapshot(started):
    hanging = Hanging()
    hanging.runs = 1
    registry = started(slow=hanging, good=Counting())
    eventually(lambda: scrape_of(registry, "good"))
    assert scrape_of(registry, "slow") is None
    slow = registry.states()[0]
    assert (slow.name, slow.scrape, slow.finished_unix_seconds) == ("slow", None, None)
    hanging.released.set()


def test_a_hanging_run_loses_its_values_and_comes_back_when_it_returns(started):
    hanging, good = Hanging(), Counting()
    registry = started(deadline=0.1, slow=hanging, good=good)
    late = eventually(lambda: (s := scrape_of(registry, "slow")) and s.failure and s)
    assert late.samples == ()
    assert late.failure.startswith("still running after ")
    assert late.duration_seconds >= 0.1
    assert late.last_success_unix_seconds is not None
    runs = good.runs
    eventually(lambda: good.runs > runs + 2)
    assert hanging.runs == 2

    hanging.released.set()
    eventually(lambda: hanging.runs >= 3 and scrape_of(registry, "slow").success)
    assert hanging.at_most == 1


def test_a_run_that_ends_after_its_deadline_is_a_failure_without_values(started):
    hanging = Hanging()
    hanging.runs = 1
    registry = started(interval=3600, deadline=0.05, slow=hanging)
    eventually(lambda: hanging.running)  # the deadline counts from the thread's start
    time.sleep(0.1)
    hanging.released.set()
    state = eventually(lambda: (s := registry.states()[0]).finished_unix_seconds and s)
    assert not state.scrape.success
    assert state.scrape.samples == ()
    assert "its deadline is 0.05 s" in state.scrape.failure


def test_an_overdue_run_is_logged_while_it_hangs(started, caplog):
    hanging = Hanging()
    registry = started(deadline=0.05, slow=hanging)
    eventually(lambda: (s := scrape_of(registry, "slow")) and s.failure)
    with caplog.at_level(logging.ERROR):
        registry.log_overdue()
    assert "collector slow failed: still running after" in caplog.text
    hanging.released.set()


def test_a_collector_that_cannot_be_made_fails_alone_and_is_made_later(monkeypatch):
    attempts = []

    def create():
        attempts.append(1)
        if len(attempts) < 3:
            raise ImportError("no pynvml")
        return Counting()

    monkeypatch.setattr("rankscope_agent.collecting.registry.CREATE_RETRY_SECONDS", 0.01)
    registry = Registry("node", {"nvml": create, "good": Counting}, 0.01, PATIENCE_SECONDS)
    registry.start()
    try:
        eventually(lambda: (s := scrape_of(registry, "nvml")) and s.success)
        assert len(attempts) == 3
    finally:
        registry.stop()


def test_a_collector_that_cannot_be_made_is_not_tried_every_second():
    attempts = []

    def create():
        attempts.append(1)
        raise NoData("no driver")

    good = Counting()
    registry = Registry("node", {"nvml": create, "good": lambda: good}, 0.01, PATIENCE_SECONDS)
    registry.start()
    try:
        eventually(lambda: good.runs > 5 and scrape_of(registry, "nvml"))
        assert len(attempts) == 1
        assert scrape_of(registry, "nvml").failure == "no data: no driver"
    finally:
        registry.stop()


class Absent:
    """Has no source until it comes."""

    there = False

    def collect(self):
        if not self.there:
            raise NoData("not there")
        yield metrics.RINGS.sample(1)


@pytest.mark.parametrize(("name", "seconds"), [("rdma", 10.0), ("training", 2.0)])
def test_an_absent_source_is_looked_for_in_every_fifth_interval_but_for_what_comes_with_jobs(
    name, seconds
):
    source = Absent()
    runner = _Runner(name, lambda: source, 2.0, PATIENCE_SECONDS)
    assert (runner.run_and_pause(), source.there) == (seconds, False)
    source.there = True
    assert runner.run_and_pause() == 2.0
    source.there = False
    assert runner.run_and_pause() == seconds


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_does_not_leave_its_values_behind(started):
    class Leaving(Counting):
        def collect(self):
            if self.runs == 1:
                raise SystemExit
            return super().collect()

    registry = started(deadline=0.05, leaving=Leaving())
    state = eventually(lambda: not (s := registry.states()[0]).scheduled and s.scrape.failure and s)
    assert state.scrape.samples == ()
    assert not registry.alive


class Finisher(Counting):
    """Has something to do at the end, which may last until it is released."""

    def __init__(self):
        super().__init__()
        self.finished = []
        self.released = threading.Event()

    def finish(self):
        self.finished.append((self.runs, threading.get_ident()))
        self.released.wait(PATIENCE_SECONDS)


def test_a_collector_finishes_after_its_last_run_in_its_thread_before_the_registry_has_stopped():
    made = Finisher()
    made.released.set()
    registry = Registry("n", {"last": lambda: made}, 0.01, 5.0)
    registry.start()
    eventually(lambda: made.runs > 2)
    registry.stop()
    assert made.finished == [(made.runs, *made.threads)]


def test_a_collector_that_takes_long_to_finish_is_abandoned(monkeypatch):
    assert registry_module.FINISH_SECONDS == 4.0
    monkeypatch.setattr(registry_module, "FINISH_SECONDS", 0.05)
    made = Finisher()
    registry = Registry("n", {"last": lambda: made, "other": Counting}, 0.01, 5.0)
    registry.start()
    eventually(lambda: made.runs > 0)
    begin = time.monotonic()
    registry.stop()
    assert time.monotonic() - begin < PATIENCE_SECONDS / 2
    made.released.set()


def test_run_once_runs_each_collector_once_and_does_not_wait_for_a_hanging_one():
    hanging, good = Hanging(), Counting()
    hanging.runs = 1
    creators = {"slow": lambda: hanging, "good": lambda: good}
    snapshot = Registry("node", creators, 0.001, 0.1).run_once()
    slow, fine = snapshot.scrapes
    assert slow.failure.startswith("still running")
    assert fine.samples == (metrics.RINGS.sample(1),)
    assert good.runs == 1
    hanging.released.set()


def test_the_schedule_keeps_to_its_grid_whatever_runs_take():
    assert next_start(10.0, 1.0, 10.4) == 11.0
    assert next_start(10.0, 1.0, 10.0) == 11.0


def test_runs_missed_by_a_long_one_are_skipped_not_made_up_for():
    assert next_start(10.0, 1.0, 15.3) == 16.0
    assert next_start(10.0, 1.0, 15.0) == 16.0


def test_a_clock_that_stood_still_does_not_stop_the_schedule():
    assert next_start(10.0, 1.0, 9.0) == 11.0


def test_only_enabled_collectors_are_made():
    config = parse_config(["--no-collector.two"], {}, ("one", "two"), "1")
    seen = []

    def create(given):
        seen.append(given)
        return Counting()

    snapshot = create_registry(config, {"one": create, "two": create}).run_once()
    assert [scrape.collector for scrape in snapshot.scrapes] == ["one", "summary"]
    assert seen == [config]


def test_collector_names_fit_into_flags_and_variables():
    assert all(name.isidentifier() and name.islower() for name in BY_COLLECTOR_OR_PART)
