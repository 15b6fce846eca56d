"""Several watches of one cluster, of which one evaluates."""

import argparse
import subprocess
import sys
import time

import pytest

import kubeconfigs
from fake_api_server import FakeApiServer
from rankscope_analyzers.command import age_seconds
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.intake.cluster import ClusterError
from rankscope_analyzers.watch import leadership
from rankscope_analyzers.watch.exporter import Exported
from rankscope_analyzers.watch.leadership import (
    LEASE_SECONDS,
    RENEW_SECONDS,
    RETRY_SECONDS,
    Lease,
)

PATIENCE_SECONDS = 30.0
HANG_SECONDS = 4.0  # longer than a holder has to renew its lease here


@pytest.fixture
def lease(api):
    """Makes leases, and closes them when the test ends."""
    made = []

    def make(say=lambda _: None):
        made.append(Lease("watch", "rankscope", say))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def api(tmp_path, monkeypatch):
    server = FakeApiServer()
    kubeconfigs.point_at(server.url, tmp_path, monkeypatch)
    for name, seconds in (("LEASE_SECONDS", 3), ("RENEW_SECONDS", 2), ("RETRY_SECONDS", 1)):
        monkeypatch.setattr(leadership, name, seconds)
    yield server
    server.close()


def test_a_holder_stops_before_others_may_take_over_and_not_for_one_bad_answer():
    assert RENEW_SECONDS + RETRY_SECONDS < LEASE_SECONDS
    assert RENEW_SECONDS >= 3 * RETRY_SECONDS
    # A lease that nobody renews is free after one evaluation is missed, and not after two.
    parser = argparse.ArgumentParser()
    watch_command.add_arguments(parser)
    interval = age_seconds(parser.get_default("interval"))
    assert interval <= LEASE_SECONDS < 2 * interval


def holder(api):
    return api.leases.stored["watch"]["spec"]["holderIdentity"]


def fails(api):
    api.faults.status = 500


def hangs(api):
    api.leases.hang_seconds = HANG_SECONDS


def until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_of_two_holds_the_lease_and_the_other_takes_it_when_that_is_gone(api, lease):
    said = []
    one = lease(said.append)
    until(one.held)
    first = holder(api)
    two = lease(said.append)
    time.sleep(2 * leadership.RETRY_SECONDS)
    assert (one.held(), two.held()) == (True, False)
    # Somebody took it by hand: the holder sees another version of it, and stops.
    api.leases.stored["watch"]["spec"]["holderIdentity"] = "nobody"
    until(lambda: not one.held())
    until(lambda: one.held() or two.held())
    assert one.held() != two.held()
    assert holder(api) != "nobody"
    assert said[0] == "holds lease rankscope/watch"
    assert first


@pytest.mark.parametrize("fault", [fails, hangs])
def test_a_holder_that_cannot_renew_stops_and_goes_on_when_it_can(api, lease, fault):
    one = lease()
    until(one.held)
    fault(api)
    until(lambda: not one.held())
    api.faults.status, api.leases.hang_seconds = 0, 0.0
    until(one.held)


def test_a_lease_that_is_given_back_needs_not_run_out(api, lease):
    one = lease()
    until(one.held)
    one.close()
    assert not one.held()
    assert "holderIdentity" not in api.leases.stored["watch"]["spec"]
    two = lease()
    began = time.monotonic()
    until(two.held)
    assert holder(api).endswith(two._identity.rpartition("_")[2])
    until(lambda: time.monotonic() > began + 2 * leadership.RETRY_SECONDS)
    assert two.held()
    assert not one.held()


def test_the_watch_gives_its_lease_back_when_it_is_asked_to_end(api, lease):
    command = [sys.executable, "-m", "rankscope_analyzers", "watch", "--cluster", "--namespace=x"]
    command += ["--lease=watch", "--web.listen-address=127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as watch:
        lines = iter(watch.stderr.readline, "")
        assert any("holds lease x/watch" in line for line in lines)
        watch.terminate()
        assert watch.wait(PATIENCE_SECONDS) == 0
    assert "holderIdentity" not in api.leases.stored["watch"]["spec"]


def test_a_server_that_is_not_there_ends_nothing(api, lease):
    api.close()
    said = []
    one = lease(said.append)
    until(lambda: said)
    assert "cannot be asked for" in said[0]
    assert not one.held()


def test_without_a_cluster_there_is_no_lease(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none")
    )
    with pytest.raises(ClusterError, match="no cluster to ask for a lease"):
        Lease("watch", "rankscope", print)


class Turn:
    """Leadership that a test gives and takes."""

    leads = True

    def held(self):
        return self.leads


def test_a_watch_that_stands_by_shows_nothing_and_begins_anew():
    turn = Turn()
    exported = Exported(turn)
    exported.update([], 1000.0, 3, [])
    assert "rankscope_watch_failed_evaluations_total 3.0" in exported.text()
    turn.leads = False
    assert exported.text() == ""
    exported.stand_by()
    turn.leads = True
    assert "rankscope_watch_failed_evaluations_total 0.0" in exported.text()


@pytest.mark.parametrize(
    "words",
    [
        ["--agent", "x"],
        ["--cluster"],
        ["--cluster", "--namespace", "rankscope", "--once"],
        ["--prometheus", "http://x", "--namespace", "rankscope"],
    ],
)
def test_a_lease_takes_a_cluster_and_a_namespace(words):
    parser = argparse.ArgumentParser()
    watch_command.add_arguments(parser)
    options = parser.parse_args([*words, "--lease", "watch"])
    with pytest.raises(watch_command.InputError, match="--lease goes with"):
        watch_command.run(options)
