"""The fault matrix in a short form, and that each of its invariants can be violated."""

from __future__ import annotations

import json
import re
import shutil
import threading
from pathlib import Path

import pytest
from benchmarks.chaos import alerting, run, soak
from benchmarks.chaos.failing import PlantedError, Switch
from benchmarks.chaos.faults import FAULTS, RUN_COLLECTORS
from benchmarks.chaos.invariants import FINAL, INVARIANTS, Records, Seen, grown, violations
from benchmarks.chaos.jobs import unprobed
from benchmarks.chaos.planted import PLANTS
from benchmarks.chaos.server import Use

from probe_jobs.fork_server import NurseryServer
from rankscope_agent.contract.sources import SOURCES

SMALL = Use(100.0, 20, 10)
VIOLATING = {
    "trainer ends with 0": Seen(exit_codes=(0, -9)),
    "trainer's files": Seen(changed=["weights-0.bin"]),
    "no record lost": Seen(steps=80, ranks=1, records={0: Records(79, 78, 0)}),
    "no record repeated": Seen(steps=80, ranks=1, records={0: Records(79, 80, 0)}),
    "page never empty": Seen(empty=1),
    "no alert lost": Seen(missing=[(alerting.STRAGGLER, "chaos-long")]),
    "no alert doubled": Seen(doubled=["an incident, change 1"]),
    "no process ends by itself": Seen(died=["watch"]),
    "verdict on another job": Seen(knows=False),
    "memory, descriptors, threads": Seen(
        before={"agent": SMALL}, after={"agent": Use(100.0, 37, 10)}
    ),
}
TOGETHER = (
    (
        "writes into files",
        "loses records",
        "empties pages",
        "misses fallbacks",
        "logs twice",
        "forgets a job",
        "leaks",
    ),
    ("kills ranks", "repeats records", "exits"),
)
"""Planted faults that do not hide one another; `python -m benchmarks.chaos --planted NAME` runs
one of them alone."""


def quick(patch: pytest.MonkeyPatch) -> None:
    """Let the slow rank's alert wait no longer than the watch's first verdict may take.

    No fault here silences the watch for long.
    """
    patch.setitem(alerting.PENDING_SECONDS, alerting.STRAGGLER, 10)
    for name in ("SETTLE_SECONDS", "JOB_SECONDS"):
        patch.setattr(run, name, 240.0)  # beside other tests; nobody waits where all is well


needs_servers = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("prometheus", "prometheus-alertmanager")),
    reason="Prometheus or Alertmanager is not installed; on Debian `make servers` installs them",
)


@pytest.mark.parametrize("name", INVARIANTS)
def test_each_invariant_is_violated_by_what_it_is_about_and_by_nothing_else(name):
    assert set(violations(VIOLATING[name])) == {name}
    assert violations(Seen()) == {}


def test_records_that_the_agent_says_were_overwritten_are_neither_lost_nor_repeated():
    assert violations(Seen(steps=80, ranks=1, records={0: Records(79, 70, 9)})) == {}


def test_a_rank_without_a_ring_is_lost_records():
    assert set(violations(Seen(steps=80, ranks=2, records={0: Records(79, 79, 0)}))) == {
        "no record lost"
    }


def test_growth_up_to_the_bounds_is_none():
    assert list(grown(SMALL, Use(150.0, 36, 16))) == []
    assert len(list(grown(SMALL, Use(150.1, 37, 17)))) == 3
    assert list(grown(Use(10.0, 20, 10), Use(42.0, 20, 10))) == []


def message(status: str, *subjects: str) -> tuple[str, dict]:
    """Return what Alertmanager sends on alerts of one group."""
    alerts = [
        {
            "fingerprint": one,
            "status": status,
            "labels": {"alertname": alerting.FALLBACK, "pod_name": one},
        }
        for one in subjects
    ]
    return "ticket", {"groupKey": "node", "alerts": alerts}


def test_a_switch_lets_those_that_it_names_raise_while_it_is_on(tmp_path):
    switch = Switch(tmp_path, "agent")
    with switch.on(["host"], "raises"):
        with pytest.raises(PlantedError, match="host"):
            switch.fail("host")
        switch.fail("netdev")
    assert switch.has_failed()
    assert not switch.has_failed()
    switch.fail("host")


def test_a_switch_lets_those_that_it_names_hang_until_it_is_off(tmp_path):
    switch = Switch(tmp_path, "watch")
    hung = threading.Thread(target=switch.fail, args=("layer",))
    with switch.on(["layer"], "hangs"):
        hung.start()
        hung.join(0.2)
        assert hung.is_alive()
    hung.join(20.0)
    assert not hung.is_alive()
    assert switch.has_failed()


def test_every_collector_of_a_switch_is_one_of_the_agent():
    assert set(RUN_COLLECTORS) <= {source.name for source in SOURCES}


def test_an_alert_that_ends_and_comes_back_has_begun_twice():
    sent = [message("firing", "a"), message("resolved", "a"), message("firing", "a", "b")]
    assert list(alerting.begun_twice(sent)) == [
        f"{alerting.FALLBACK} on a, begun 2 times: {{}}; {{}}"
    ]
    assert alerting.firing(sent) == {(alerting.FALLBACK, "a"), (alerting.FALLBACK, "b")}
    assert list(alerting.repeated(sent)) == []


def test_two_alerts_on_one_subject_are_told_apart_by_the_labels_in_which_they_differ():
    labels = {"alertname": alerting.STRAGGLER, "job_id": "a"}
    alerts = [
        {"status": "firing", "fingerprint": cause, "labels": labels | {"cause": cause}}
        for cause in ("clock", "heat")
    ]
    assert list(alerting.begun_twice([("team", {"alerts": alerts})])) == [
        f"{alerting.STRAGGLER} on a, begun 2 times: {{'cause': 'clock'}}; {{'cause': 'heat'}}"
    ]


def test_an_alert_that_goes_on_beside_a_new_one_of_its_group_is_not_repeated():
    sent = [message("firing", "a"), message("firing", "a", "b")]
    assert list(alerting.begun_twice(sent)) == []
    assert list(alerting.repeated(sent)) == []
    assert list(alerting.repeated([*sent, sent[-1]])) == [
        (alerting.FALLBACK, "a"),
        (alerting.FALLBACK, "b"),
    ]


def test_an_alert_holds_while_its_condition_is_true_and_not_while_it_is_only_kept():
    kept = {"keepFiringSince": "2026-11-27T08:04:06Z"}
    labels = {"alertname": alerting.STRAGGLER, "job_id": "a"}
    rows = [
        {"state": "firing", "labels": labels},
        {"state": "firing", "labels": labels | {"job_id": "b"}} | kept,
        {"state": "pending", "labels": labels | {"job_id": "c"}},
    ]
    assert alerting.holding(json.dumps({"data": {"alerts": rows}})) == {(alerting.STRAGGLER, "a")}


def test_a_change_that_a_log_tells_twice_is_found_beside_a_line_that_was_cut_short():
    line = '{"incident":"a","number":1}\n'
    assert list(alerting.logged_twice(line + '{"incident":"a","num\n' + line)) == ["a change 1"]
    assert list(alerting.logged_twice(line + line.replace("1", "2"))) == []


def test_every_invariant_has_a_planted_fault_that_is_run():
    assert {plant.invariant for plant in PLANTS.values()} == set(INVARIANTS) >= FINAL
    assert sorted(name for names in TOGETHER for name in names) == sorted(PLANTS)


@pytest.fixture(scope="module")
def beside(tmp_path_factory, nurseries):
    """Give what forks the jobs of all chains, and the job whose files they must reproduce."""
    server = NurseryServer(nurseries, probed=False)
    with unprobed(tmp_path_factory.mktemp("unprobed"), server) as made:
        yield made


@needs_servers
def test_faults_in_a_row_violate_nothing(beside):
    with pytest.MonkeyPatch.context() as patch:
        quick(patch)
        names = ["agent killed", "32 slow scrapers"]
        result = run.measure(1, names, settle=run.SETTLE_SECONDS, beside=beside)
    assert [one.fault for one in result.rounds] == [run.WARM, *names]
    assert not any(one.violations for one in result.rounds), run.report(result)
    assert all(one.seen.pages and len(one.seen.records) == 2 for one in result.rounds)
    assert set(result.long) == {0}


@needs_servers
@pytest.mark.parametrize("names", TOGETHER, ids=("harming data", "harming processes"))
def test_planted_faults_violate_their_invariants(names, beside):
    with pytest.MonkeyPatch.context() as patch:
        quick(patch)
        result = run.measure(1, ["nothing"], names, settle=12.0, beside=beside)
    assert set(result.rounds[-1].violations) >= {PLANTS[name].invariant for name in names}


def test_a_soak_counts_what_the_agent_and_the_watch_hold():
    soaked = soak.soak(8.0, 6)
    assert soaked.jobs == 6
    assert all(len(moments) > 1 for moments in soaked.moments.values())
    assert "MiB per hour" in soak.report(soaked)


def test_growth_is_a_slope_of_the_second_half():
    moments = [soak.Moment(n * 36.0, Use(100.0 + max(0, n - 50), 1, 1), 1) for n in range(100)]
    assert round(soak.slope(moments)) == 100


def test_the_documented_planted_faults_are_those_of_the_table():
    text = (Path(__file__).parents[1] / "docs" / "chaos.md").read_text()
    rows = re.findall(r"(?m)^\| `([^`]+)` \| (.+) \|$", text)
    assert dict(rows) == {name: plant.invariant for name, plant in PLANTS.items()}
    shown = re.findall(r"(?m)^(\S.*?) +\d+ s +\d+ pages", text)
    assert set(shown) <= {run.WARM, *FAULTS}
