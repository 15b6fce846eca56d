"""Several watches of one cluster, of which one evaluates."""

import argparse
import subprocess
import sys
import threading
import time

import pytest

import kubeconfigs
from dripping import DRIPS, Dripping
from fake_api_server import FakeApiServer
from rankscope_analyzers.arguments import watch as watch_options
from rankscope_analyzers.command import age_seconds
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.intake.cluster import ClusterError
from rankscope_analyzers.watch import cluster_lease, election, leadership
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.leadership import LeaseLeadership, SingleInstance
from rankscope_analyzers.watch.server import readiness

PATIENCE_SECONDS = 30.0
HANG_SECONDS = 2.0  # longer than a question may take here


@pytest.fixture
def lease(api):
    """Makes leases, and closes them when the test ends."""
    made = []

    def make(say=lambda _: None):
        made.append(LeaseLeadership("watch", "rankscope", say))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def api(tmp_path, monkeypatch):
    server = FakeApiServer()
    kubeconfigs.point_at(server.url, tmp_path, monkeypatch)
    monkeypatch.setattr(election, "LEASE_SECONDS", 3.0)
    monkeypatch.setattr(leadership, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr(cluster_lease, "REQUEST_SECONDS", 1)
    yield server
    server.close()


def test_a_lease_runs_out_after_one_evaluation_and_not_for_one_bad_answer():
    """The holder loses three answers before others take its lease, and is not stuck before that."""
    assert 3 * (leadership.RETRY_SECONDS + cluster_lease.REQUEST_SECONDS) <= election.LEASE_SECONDS
    longest = 2 * election.CONFLICTS * cluster_lease.REQUEST_SECONDS + leadership.RETRY_SECONDS
    assert longest < leadership.STUCK_SECONDS
    # A lease that nobody renews is free after one evaluation is missed, and not after two.
    parser = argparse.ArgumentParser()
    watch_options.add_arguments(parser)
    interval = age_seconds(parser.get_default("interval"), "--interval")
    assert interval <= election.LEASE_SECONDS < 2 * interval


def holder(api):
    return api.leases.stored["watch"]["spec"]["holderIdentity"]


def fails(api):
    api.faults.status = 500


def hangs(api):
    api.leases.hang_seconds = HANG_SECONDS


def refuses(api):
    api.leases.forbidden = {"get", "create", "update"}


def until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def series(*held):
    """Return what watches show of their lease: whether they lead, and whether they can read it."""
    return [
        tuple(int(line.rpartition(" ")[2].partition(".")[0]) for line in lines)
        for one in held
        for text in [FindingsExporter(one).text()]
        for lines in [[x for x in text.splitlines() if 'lease="rankscope/watch"' in x]]
    ]


def test_one_of_two_holds_the_lease_and_the_other_stands_by(api, lease):
    said = []
    one = lease(said.append)
    until(one.held)
    two = lease()
    until(lambda: not two.problem())
    assert (one.held(), two.held()) == (True, False)
    assert series(one, two) == [(1, 1), (0, 1)]
    assert said == ["holds lease rankscope/watch"]


def test_each_attempt_renews_the_lease_and_says_since_when_it_is_held(api):
    def times():
        spec = api.leases.stored["watch"]["spec"]
        return spec["acquireTime"], spec["renewTime"], spec["leaseTransitions"]

    lease = cluster_lease.ClusterLease("watch", "rankscope")
    assert lease.create("one")
    acquired, renewed, first = times()
    assert acquired == renewed
    for _ in range(2):
        assert lease.replace(lease.read(), "one")
        before, (since, renewed, transitions) = renewed, times()
        assert renewed > before
        assert (since, transitions) == (acquired, first)
    assert lease.replace(lease.read(), "another")
    since, now, transitions = times()
    assert since == now > renewed
    assert transitions == first + 1
    assert lease.read().term == election.Term("another", first + 1, 1795435200.0)


def test_a_deposed_holder_falls_silent_as_soon_as_it_reads_that_another_holds_it(api, lease):
    """Not when its last renewal is old: until then both would speak."""
    said = []
    one = lease(said.append)
    until(one.held)
    api.leases.stored["watch"]["spec"]["holderIdentity"] = "another"
    until(lambda: not one.held())
    assert said[-1] == "lost lease rankscope/watch, which another holds"
    assert (holder(api), series(one)) == ("another", [(0, 1)])


@pytest.mark.parametrize("fault", [fails, hangs, refuses])
def test_a_holder_that_cannot_renew_goes_on_and_says_so(api, lease, fault):
    """Nobody can take the lease of it where nobody is answered."""
    said = []
    one, two = lease(said.append), lease()
    until(lambda: one.held() or two.held())
    one, two = (one, two) if one.held() else (two, one)
    fault(api)
    until(lambda: one.problem() and two.problem())
    began = time.monotonic()
    until(lambda: time.monotonic() > began + election.LEASE_SECONDS + HANG_SECONDS)
    assert (one.held(), two.held()) == (True, False)
    assert series(one, two) == [(1, 0), (0, 0)]
    assert one.problem().startswith("the lease rankscope/watch cannot be read")
    api.faults.status, api.leases.hang_seconds, api.leases.forbidden = 0, 0.0, set()
    until(lambda: not one.problem() and not two.problem())
    assert [one.held(), two.held()].count(True) == 1


def test_a_watch_without_the_right_to_the_lease_says_code_and_reason(api, lease):
    api.leases.forbidden = {"get"}
    said = []
    one = lease(said.append)
    until(lambda: said)
    began = time.monotonic()
    until(lambda: time.monotonic() > began + 5 * leadership.RETRY_SECONDS)
    (sentence,) = said  # once, however often it is asked for
    assert "the lease rankscope/watch cannot be read: 403 Forbidden: leases.coord" in sentence
    assert 'cannot get resource "leases"' in sentence
    assert sentence.endswith("; stands by")
    code, ready = readiness(FindingsExporter(one))
    assert (code, series(one)) == (503, [(0, 0)])
    assert (
        "is on standby and does not know whether another evaluates: the lease rankscope/watch"
        in ready
    )
    api.leases.forbidden = {"create"}
    until(lambda: "cannot be created: 403" in said[-1])
    api.leases.forbidden = set()
    until(one.held)
    assert said[-2:] == [
        "the lease rankscope/watch can be read again",
        "holds lease rankscope/watch",
    ]


def test_a_standby_that_may_not_take_what_has_run_out_says_so(api, lease):
    first = lease()
    until(first.held)
    two = lease()
    until(lambda: not two.problem())
    api.leases.forbidden = {"update"}
    first._closing.set()  # as if it were gone, without giving anything back
    until(lambda: "cannot be renewed: 403 Forbidden" in two.problem())
    assert not two.held()


def test_before_the_lease_was_read_nobody_is_said_to_lead_or_to_be_ready(api, lease):
    api.leases.hang_seconds = HANG_SECONDS
    one = lease()
    assert readiness(FindingsExporter(one))[0] == 503
    assert series(one) == [(0,)]


def test_ready_is_who_evaluates_and_who_knows_that_another_does(api, lease):
    one = lease()
    until(one.held)
    exported = FindingsExporter(one)
    assert readiness(exported) == (503, "The first evaluation has not ended.")
    exported.fail()
    assert readiness(exported) == (200, "The first evaluation has ended.")
    two = lease()
    until(lambda: not two.problem())
    assert readiness(FindingsExporter(two)) == (
        200,
        "Another watch evaluates; this one is on standby.",
    )
    api.faults.status = 503  # maybe between reading and renewing, which is another problem
    until(lambda: "cannot be read" in one.problem())
    code, said = readiness(exported)
    assert (code, "ended. But the lease rankscope/watch cannot be read: 503" in said) == (200, True)


class Stuck:
    """A store whose first answer never comes."""

    def __init__(self):
        self.go_on = threading.Event()

    def read(self):
        self.go_on.wait()

    def create(self, holder):
        return election.LeaseRecord(holder, 0.0, None, 0, 0.0)


def test_a_holder_that_looks_no_more_does_not_hold(monkeypatch):
    """It could not hear that another holds the lease."""
    store = Stuck()
    store.go_on.set()
    monkeypatch.setattr(leadership, "RETRY_SECONDS", 0.0)
    one = LeaseLeadership("watch", "rankscope", print, store)
    until(one.held)
    store.go_on.clear()
    monkeypatch.setattr(leadership, "STUCK_SECONDS", 0.1)
    until(lambda: not one.held())
    assert "the lease rankscope/watch was not checked" in one.problem()
    monkeypatch.setattr(leadership, "STUCK_SECONDS", 120.0)
    store.go_on.set()
    one.close()


def test_a_lease_that_is_given_back_needs_not_run_out(api, lease):
    one = lease()
    until(one.held)
    one.close()
    assert not one.held()
    assert "holderIdentity" not in api.leases.stored["watch"]["spec"]
    two = lease()
    began = time.monotonic()
    until(two.held)
    assert holder(api) == two._election._identity
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
    assert "cannot be read: the API server cannot be reached: " in said[0]
    assert "Connection refused" in said[0]
    assert not one.held()


@pytest.mark.parametrize("drip", ["headers", "body"])
def test_a_server_that_drips_is_given_up_and_asked_again(api, lease, drip, tmp_path, monkeypatch):
    said = []
    with Dripping(DRIPS[drip]) as server:
        kubeconfigs.point_at(server.url, tmp_path, monkeypatch)
        one = lease(said.append)
        until(lambda: server.connections > 1 and said)
        assert not one.held()
    assert "cannot be read: the API server cannot be reached" in said[0]


def test_without_a_cluster_there_is_no_lease(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none")
    )
    with pytest.raises(ClusterError, match="no cluster to ask for a lease"):
        LeaseLeadership("watch", "rankscope", print)


class Turn(SingleInstance):
    """Leadership that a test gives and takes."""

    is_leader = True

    def held(self):
        return self.is_leader


def test_a_watch_that_stands_by_shows_nothing_and_lowers_no_counter_when_it_leads_again():
    """A scrape between 0 and the saved value would count all of it again."""
    turn = Turn()
    exported = FindingsExporter(turn)
    exported.update([], 1000.0, 3, [])
    assert "rankscope_watch_failed_evaluations_total 3.0" in exported.text()
    turn.is_leader = False
    assert exported.text() == ""
    exported.stand_by()
    turn.is_leader = True
    assert "rankscope_watch_failed_evaluations_total 3.0" in exported.text()
    assert "rankscope_watch_last_evaluation" not in exported.text()


@pytest.mark.parametrize(
    "words",
    [
        ["--agent", "x"],
        ["--cluster"],
        ["--prometheus", "http://x", "--namespace", "rankscope"],
    ],
)
def test_a_lease_takes_a_cluster_and_a_namespace(words):
    parser = argparse.ArgumentParser()
    watch_options.add_arguments(parser)
    options = parser.parse_args([*words, "--lease", "watch"])
    with pytest.raises(watch_command.InputError, match="--lease needs"):
        watch_command.run(options)
