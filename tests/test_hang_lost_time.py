"""GPU time that a hang takes: each second of it counts once, whatever the watch could not see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hanging_jobs import NOW, reported, steps, training_page
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.store import FileStore
from test_watch_sums import counters

RANKS = 8
LOST = 'rankscope_job_lost_gpu_seconds_total{cause="hang",job_id="job"}'
OBSERVED = 'rankscope_job_observed_gpu_seconds_total{job_id="job"}'
LAST_STEP = NOW + 3600.0


@pytest.fixture(scope="module")
def judged():
    return steps()


class Looks:
    """A watch that looks every 30 s at a job, an hour of which it saw before the hang."""

    def __init__(self, path, judged):
        self.path, self.judged = path, judged
        self.start()
        for self.now in (NOW + 30.0 * number for number in range(121)):
            self.look(last=self.now - 5.0)

    def start(self):
        """Begin as a new process does, with what the one before saved."""
        self.exporter, self.said = FindingsExporter(), []
        self.memory = Memory(FileStore(self.path), self.said.append)
        self.memory.begin(self.exporter, None)

    def report(self, last):
        """Return the report of a job whose last step ended at a time."""
        found = reported(training_page(self.now - last), judged=self.judged)
        incidents = tuple(
            replace(one, timing=replace(one.timing, since_unix_seconds=last))
            for one in found.incidents
        )
        return replace(found, incidents=incidents, made_unix_seconds=self.now)

    def look(self, last=LAST_STEP):
        assert self.exporter.update([self.report(last)], self.now, 0, ()) == ()
        self.memory.end(self.exporter, None, changed=True)

    def sums(self):
        found = counters(self.exporter)
        return found[LOST] / RANKS, found[OBSERVED] / RANKS


def fail(looks):
    looks.exporter.with_watch(lambda series: series.fail(looks.now))


def miss(looks):
    looks.exporter.update([], looks.now, 0, ())


def restart(looks):
    looks.start()


def restart_late(looks):
    looks.now += 900.0
    looks.start()


def lead_again(looks):
    looks.exporter.stand_by()
    looks.memory.forget()
    looks.memory.begin(looks.exporter, None)


def blink(looks):
    """One look sees steps, by a page that is wrong."""
    looks.look(last=looks.now - 5.0)


def go_on(looks):
    """Nothing happens."""


@pytest.mark.parametrize("happens", [go_on, fail, miss, restart, restart_late, lead_again, blink])
def test_each_second_of_a_hang_is_lost_once(tmp_path, judged, happens):
    looks = Looks(tmp_path / "state", judged)
    for number in range(20):
        looks.now += 30.0
        if number in (8, 14):
            happens(looks)
        else:
            looks.look()
    lost, observed = looks.sums()
    assert lost == pytest.approx(looks.now - LAST_STEP)
    assert observed == pytest.approx(looks.now - NOW)
    assert looks.said == []


def test_a_hang_that_begins_while_nothing_is_seen_is_another_one(tmp_path, judged):
    looks = Looks(tmp_path / "state", judged)
    for _ in range(4):
        looks.now += 30.0
        looks.look()
    for _ in range(10):
        looks.now += 30.0
        fail(looks)
    again = looks.now - 200.0
    looks.look(last=again)
    looks.now += 30.0
    looks.look(last=again)
    lost, observed = looks.sums()
    assert lost == pytest.approx(120.0 + 230.0)
    assert observed == pytest.approx(3600.0 + 120.0 + 30.0), (
        "unseen time of a job that may have run"
    )
