"""What is exported of incidents whose job an evaluation could not see: what was seen last."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace

import pytest

from answering_agents import Agent
from rankscope_analyzers.arguments import watch as watch_options
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.intake import agent_pages
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.series import WatchSeries
from test_incident_history import healthy, past, slow  # noqa: F401 - fixtures

BLIND = ("step records: agent n1 did not answer within 6 s",)
KEPT_SECONDS = 300.0
JOB = "ns/job"
SEEN = "rankscope_finding_seen_timestamp_seconds"


def exported(watch):
    """Return the series of findings, with the time at which each was seen apart."""
    found = {(one.metric.name, *one.labels): one.value for one in watch.samples()}
    seen = {key[2]: value for key, value in found.items() if key[0] == SEEN}
    return {k: v for k, v in found.items() if "_finding_" in k[0] and k[0] != SEEN}, seen


@pytest.fixture
def blind(healthy):  # noqa: F811
    return replace(healthy, missing=BLIND, verdict=None, frame=None, locations={})


def test_a_look_that_cannot_see_a_job_exports_what_the_last_one_saw(slow, blind):  # noqa: F811
    watch = WatchSeries()
    watch.update([slow], 1000.0)
    before, seen = exported(watch)
    assert before
    assert seen == {"gpu_compute": 1000.0}
    for now in (1030.0, 1060.0):
        watch.update([blind], now)
        assert exported(watch) == (before, seen)
    watch.update([slow], 1090.0)
    assert exported(watch) == (before, {"gpu_compute": 1090.0})


def test_one_that_sees_the_job_again_without_it_ends_it(slow, blind, healthy):  # noqa: F811
    watch = WatchSeries()
    for report, now in ((slow, 1000.0), (blind, 1030.0), (healthy, 1060.0), (blind, 1090.0)):
        watch.update([report], now)
    found, seen = exported(watch)
    assert {key[0] for key in found} == {"rankscope_finding_recovered_timestamp_seconds"}
    assert seen == {}


@pytest.mark.parametrize(("seconds", "shown"), [(KEPT_SECONDS, True), (KEPT_SECONDS + 1, False)])
def test_what_nobody_has_seen_for_five_minutes_is_no_longer_said(
    slow,  # noqa: F811
    blind,
    seconds,
    shown,
):
    watch = WatchSeries()
    watch.update([slow], 1000.0)
    watch.update([blind], 1000.0 + seconds)
    assert bool(exported(watch)[0]) == shown
    watch = WatchSeries()
    watch.update([slow], 1000.0)
    watch.fail(1000.0 + seconds)
    assert bool(exported(watch)[0]) == shown


def test_an_evaluation_that_reads_nothing_ends_no_finding(slow, healthy):  # noqa: F811
    watch = WatchSeries()
    watch.update([slow], 1000.0)
    before = exported(watch)
    watch.fail(1030.0)
    watch.fail(1060.0)
    assert exported(watch) == before
    watch.update([healthy], 1090.0)
    assert exported(watch)[1] == {}


def test_a_job_that_is_gone_takes_its_findings_along(slow):  # noqa: F811
    watch = WatchSeries()
    watch.update([slow], 1000.0)
    watch.update([], 1030.0)
    watch.fail(1060.0)
    assert exported(watch) == ({}, {})


def test_an_incident_that_is_seen_in_part_is_exported_once(slow, blind):  # noqa: F811
    """Its cause was found in other layers before, and is not seen now: step times go on."""
    (first,) = slow.incidents
    explained = replace(first, cause=replace(first.cause, kind="thermal_slowdown"))
    watch = WatchSeries()
    watch.update([replace(slow, incidents=(explained,))], 1000.0)
    watch.update([replace(blind, incidents=(first,))], 1030.0)
    assert exported(watch)[1] == {"gpu_compute": 1030.0}


def test_time_that_nobody_saw_is_no_lost_time(slow, blind):  # noqa: F811
    watch = WatchSeries()
    for report, now in ((slow, 1000.0), (slow, 1010.0), (blind, 1020.0), (blind, 1030.0)):
        watch.update([report], now)
    watch.announce_sums()
    sums = {
        one.metric.name: one.value for one in watch.samples() if "_seconds_total" in one.metric.name
    }
    ranks = len(slow.locations)
    assert sums["rankscope_job_observed_gpu_seconds_total"] == 20.0 * ranks


def test_kinds_of_a_job_stay_bounded_whether_seen_or_not(slow, blind):  # noqa: F811
    (first,) = slow.incidents

    def several(begin):
        kinds = [f"kind_{begin + number}" for number in range(16)]
        return tuple(
            replace(
                first,
                cause=replace(first.cause, kind=kind),
                timing=replace(first.timing, kind=kind),
            )
            for kind in kinds
        )

    watch = WatchSeries()
    watch.update([replace(slow, incidents=several(0))], 1000.0)
    watch.update([replace(blind, incidents=several(8)[:12])], 1030.0)
    seen = exported(watch)[1]
    assert len(seen) == 16
    assert set(seen) >= {f"kind_{8 + number}" for number in range(12)}


CULPRIT = re.compile(r'(?m)^rankscope_finding_culprit_info{.*kind="gpu_compute".*rank="5".*} 1.0$')


class Unsteady(Agent):
    """An agent that at times does not answer all that it is asked."""

    silent: tuple[str, ...] = ()

    def answer(self, path):
        return None if path in self.silent else super().answer(path)


@pytest.fixture
def looks(monkeypatch):
    """Return agents of two nodes, the slow rank on the second, and how to look at them."""
    monkeypatch.setattr(agent_pages, "POLL_SECONDS", 0.0)
    parser = argparse.ArgumentParser()
    watch_options.add_arguments(parser)
    with Unsteady("n0", range(4)) as first, Unsteady("n1", range(4, 8)) as second:
        flags = [f"--agent={one.url}" for one in (first, second)]
        options = parser.parse_args([*flags, "--since=9000d"])
        source = watch_command.JobSource(watch_command.reader(options, 30.0))
        exporter, log = FindingsExporter(), ErrorLog(sys.stderr.write)

        def look():
            watch_command.evaluate(source, exporter, log)
            return exporter.text()

        yield first, second, look


@pytest.mark.parametrize(
    ("of_first", "of_second"),
    [
        ((), ("/api/v1/steps",)),
        (("/api/v1/ranks",), ("/api/v1/steps",)),
        ((), ("/healthz",)),
        (("/api/v1/steps",), ("/metrics",)),
        (("/metrics",), ("/metrics",)),
    ],
)
def test_agents_that_do_not_answer_for_a_while_take_no_verdict_back(looks, of_first, of_second):
    first, second, look = looks
    assert CULPRIT.search(look())
    first.silent, second.silent = of_first, of_second
    for _ in range(2):
        assert CULPRIT.search(look())
    first.silent = second.silent = ()
    assert CULPRIT.search(look())


def test_new_steps_that_go_on_as_before_confirm_what_step_times_show(slow):  # noqa: F811
    watch = WatchSeries()
    watch.update([slow], 1000.0)
    before, _ = exported(watch)
    watch.confirm([JOB, "ns/unknown"], 1005.0)
    assert exported(watch) == (before, {"gpu_compute": 1005.0})


def test_new_steps_confirm_nothing_that_other_layers_or_earlier_evaluations_saw(slow, blind):  # noqa: F811
    watch = WatchSeries()
    untimed = tuple(replace(one, timing=None) for one in slow.incidents)
    watch.update([replace(slow, incidents=untimed)], 1000.0)
    watch.confirm([JOB], 1005.0)
    assert exported(watch)[1] == {"gpu_compute": 1000.0}
    watch.update([slow], 1010.0)
    watch.update([blind], 1020.0)
    watch.confirm([JOB], 1025.0)
    assert exported(watch)[1] == {"gpu_compute": 1010.0}


def test_a_report_that_was_not_renewed_was_seen_when_it_was_made(slow, healthy):  # noqa: F811
    watch = WatchSeries()
    other = replace(healthy, job_id="ns/other")
    watch.update([slow, other], 1000.0)
    watch.update([slow, replace(other)], 1030.0)
    assert exported(watch)[1] == {"gpu_compute": 1000.0}
    watch.update([replace(slow), other], 1060.0)
    assert exported(watch)[1] == {"gpu_compute": 1060.0}
