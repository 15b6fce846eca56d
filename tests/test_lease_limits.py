"""How often a watch renews its lease, how long it is asked for, and when it is no longer held."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from kubernetes.client.exceptions import ApiException

from rankscope_analyzers.watch import cluster_lease, leadership
from rankscope_analyzers.watch.election import LeaseError, LeaseRecord
from recording_api import RecordingApi


@pytest.fixture
def leases(monkeypatch):
    api = RecordingApi()
    client = SimpleNamespace(V1Lease=dict, V1ObjectMeta=dict, V1LeaseSpec=dict)
    monkeypatch.setattr(cluster_lease, "_client", lambda: (client, api))
    return api


@pytest.mark.parametrize("error", [OSError("x" * 5000), ApiException(500, "x" * 5000)])
def test_what_an_api_server_says_of_a_lease_is_cut(leases, error):
    leases.error = error
    with pytest.raises(LeaseError) as raised:
        cluster_lease.ClusterLease("watch", "rankscope").create("one")
    assert 280 <= str(raised.value).count("x") <= 300


def test_requests_about_a_lease_end_after_five_seconds(leases, monkeypatch):
    monkeypatch.setattr(cluster_lease.ClusterLease, "_record", lambda self, found: found)
    lease = cluster_lease.ClusterLease("watch", "rankscope")
    lease.create("one")
    lease.replace(LeaseRecord("one", None, SimpleNamespace(spec=None), 0, 0.0), "one")
    assert {options["_request_timeout"] for _, options in leases.asked} == {5}


@pytest.mark.parametrize(("status", "faster"), [(409, True), (404, False), (410, False)])
def test_a_conflict_alone_says_that_another_watch_was_faster(leases, status, faster):
    leases.error = ApiException(status, "no")
    lease = cluster_lease.ClusterLease("watch", "rankscope")
    if faster:
        assert not lease.create("one")
        return
    with pytest.raises(LeaseError):
        lease.create("one")


@pytest.mark.parametrize(("status", "absent"), [(404, True), (409, False), (403, False)])
def test_a_lease_is_absent_by_one_status_alone(leases, status, absent):
    leases.error = ApiException(status, "no")
    lease = cluster_lease.ClusterLease("watch", "rankscope")
    if absent:
        assert lease.read() is None
        return
    with pytest.raises(LeaseError):
        lease.read()


class Free:
    """Stores a lease that anybody may have."""

    def read(self):
        return None

    def create(self, holder):
        return LeaseRecord(holder, None, None, 0, 0.0)

    def replace(self, read, holder):
        return True


class Pauses(threading.Event):
    """Notes the pauses between attempts; the second one lasts until the end."""

    def __init__(self):
        super().__init__()
        self.seconds, self.second = [], threading.Event()

    def wait(self, timeout=None):
        self.seconds.append(timeout)
        if len(self.seconds) < 2:
            return False
        self.second.set()
        return super().wait()


@pytest.fixture
def held(monkeypatch):
    """Leadership of a free lease after two attempts, the pauses between them, and its clock."""
    clock, pauses = SimpleNamespace(now=1000.0), Pauses()
    monkeypatch.setattr(leadership, "time", SimpleNamespace(monotonic=lambda: clock.now))
    events = SimpleNamespace(Event=lambda: pauses, Thread=threading.Thread, Lock=threading.Lock)
    monkeypatch.setattr(leadership, "threading", events)
    lease = leadership.LeaseLeadership("watch", "rankscope", lambda _: None, Free())
    assert pauses.second.wait(30)
    yield lease, pauses, clock
    lease.close()


def test_a_lease_is_renewed_every_five_seconds(held):
    _, pauses, _ = held
    assert pauses.seconds == [5.0, 5.0]


def test_a_holder_whose_attempts_are_stuck_for_two_minutes_does_not_lead(held):
    lease, _, clock = held
    clock.now += 119.9
    assert (lease.held(), lease.problem()) == (True, "")
    clock.now += 0.2
    assert not lease.held()
    assert lease.problem().endswith("was not checked for 120 s")
