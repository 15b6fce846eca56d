"""Limits of the watch: of its requests, series, sums and of what it keeps and publishes."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from kubernetes.client.exceptions import ApiException

from rankscope_analyzers.findings.finding import Finding, Where
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake.kubernetes_api import Answer
from rankscope_analyzers.watch import cluster_lease, cluster_nodes, leadership
from rankscope_analyzers.watch.cluster_jobs import ClusterJobs
from rankscope_analyzers.watch.completions import Completions
from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.watch.election import LeaseError, LeaseRecord
from rankscope_analyzers.watch.incident_history import IncidentHistory, IncidentState
from rankscope_analyzers.watch.job_samples import of_job
from rankscope_analyzers.watch.node_conditions import problems
from rankscope_analyzers.watch.node_publisher import NodePublisher, PublishError
from rankscope_analyzers.watch.store import FileStore, StoreError, parsed
from rankscope_analyzers.workloads.jobs import Job
from rankscope_analyzers.workloads.state import Progress, Replicas, WorkloadState


def finding(*nodes: str, summary: str = "GPU 3 lost rows.") -> Finding:
    return Finding(
        kind="gpu_memory",
        layer="kernel",
        severity="page",
        job_id="team/a",
        summary=summary,
        action="",
        runbook="RankscopeGpuMemoryError",
        where=Where(nodes=nodes),
    )


def report(*observations: Finding) -> JobReport:
    return JobReport(
        job_id="team/a",
        verdict=None,
        frame=None,
        incidents=(),
        observations=observations,
        locations={},
        unobserved=(),
        sources=(),
        made_unix_seconds=0.0,
    )


def nodes(count: int) -> list[str]:
    return [f"gpu-{number:03d}" for number in range(count)]


@pytest.mark.parametrize(("count", "accused"), [(1, 1), (16, 16), (17, 0)])
def test_a_finding_about_seventeen_nodes_is_about_none_of_them(count, accused):
    assert len(problems([report(finding(*nodes(count)))])) == accused


class Writer:
    """Takes conditions of nodes and notes which nodes were written."""

    def __init__(self):
        self.written = []

    def read(self):
        return {}

    def apply(self, node, conditions, now):
        self.written.append(node)

    def announce(self, node, condition, now):
        pass


def published(writer, seconds, looks=1, of=40):
    """Publish a finding of each of many nodes; each write takes some seconds."""
    clock = SimpleNamespace(now=0.0)
    apply = writer.apply

    def slow(*given):
        clock.now += seconds
        apply(*given)

    writer.apply = slow
    publisher = NodePublisher(writer, lambda _: None, lambda: clock.now)
    for look in range(looks):
        publisher.publish([report(*(finding(name) for name in nodes(of)))], float(look))
    return publisher, clock


def test_twenty_nodes_are_written_after_one_evaluation():
    writer = Writer()
    published(writer, 0.0)
    assert writer.written == nodes(20)


@pytest.mark.parametrize(("seconds", "written"), [(2.4, 5), (2.6, 4), (5.1, 2), (10.1, 1)])
def test_no_node_is_written_after_ten_seconds(seconds, written):
    writer = Writer()
    published(writer, seconds)
    assert len(writer.written) == written


def test_an_unchanged_problem_is_confirmed_after_five_minutes():
    writer = Writer()
    publisher, clock = published(writer, 0.0, of=1)
    for clock.now, written in ((299.9, 1), (300.0, 2), (599.9, 2), (600.0, 3)):
        publisher.publish([report(finding("gpu-000"))], clock.now)
        assert len(writer.written) == written


class Nodes:
    """The API of nodes and Events: notes what it is asked, and refuses if so told."""

    def __init__(self, error=None):
        self.asked, self.error = [], error

    def __getattr__(self, name):
        def request(*given, **options):
            self.asked.append((given, options))
            if self.error:
                raise self.error
            return SimpleNamespace(data=b'{"metadata": {"continue": "more"}}')

        return request


@pytest.fixture
def cluster(monkeypatch):
    api = Nodes()
    monkeypatch.setattr(cluster_nodes, "_apis", lambda: (api, api))
    return api


def test_nodes_are_read_in_a_hundred_pages_of_a_hundred(cluster):
    cluster_nodes.ClusterNodes().read()
    assert len(cluster.asked) == 100
    assert {options["limit"] for _, options in cluster.asked} == {100}


def test_requests_about_nodes_end_after_five_seconds(cluster):
    own = cluster_nodes.ClusterNodes()
    condition = next(iter(problems([report(finding("gpu-000"))])["gpu-000"].values()))
    own.read()
    own.apply("gpu-000", (), 0.0)
    own.announce("gpu-000", condition, 0.0)
    assert {options["_request_timeout"] for _, options in cluster.asked} == {5.0}


def test_names_of_events_begin_with_two_hundred_characters_of_the_node(cluster):
    condition = next(iter(problems([report(finding("n"))])["n"].values()))
    cluster_nodes.ClusterNodes().announce("n" * 253, condition, 0.0)
    ((_, body), _) = cluster.asked[0]
    assert body["metadata"]["generateName"] == "n" * 200 + "."


@pytest.mark.parametrize("error", [OSError("x" * 5000), ApiException(500, "x" * 5000)])
def test_what_an_api_server_says_of_nodes_is_cut(cluster, error):
    cluster.error = error
    with pytest.raises(PublishError) as raised:
        cluster_nodes.ClusterNodes().read()
    assert 290 <= str(raised.value).count("x") <= 300


@pytest.fixture
def leases(monkeypatch):
    api = Nodes()
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


STARTED = Job(
    top=WorkloadState(
        "PyTorchJob", "team", "train", "uid", 0.0, "research", None, Progress("running")
    ),
    name="train",
    state="running",
    cause="",
    waiting={},
    queue="",
    unscheduled=0,
    gpus_held=0,
    gpus_waiting=0,
    startup={},
    interruptions=None,
    oldest_pod=None,
    newest_pod=None,
    nodes=frozenset(),
    pods=0,
)


def job(number=0, namespace="team", job_class="research", uid="", **changes):
    top = replace(
        STARTED.top,
        uid=uid or f"{namespace}-{job_class}-{number}",
        name=f"train-{number}",
        namespace=namespace,
        job_class=job_class,
        created=0.0,
        progress=Progress("running", **changes.pop("progress", {})),
    )
    return replace(STARTED, top=top, name=top.name, **changes)


def named(samples, name):
    return [one for one in samples if one.metric.name == name]


def test_eight_numbers_of_replicas_of_a_job_have_series_those_that_are_wanted_first():
    roles = tuple(Replicas(f"role-{number}", wanted=number, active=1) for number in range(7))
    found = named(of_job(job(progress={"replicas": roles}), {}), "rankscope_job_replicas")
    assert len(found) == 8
    assert [one.value for one in found] == [*range(7), 1]


def test_the_four_reasons_that_a_job_waits_for_longest_have_series():
    waiting = {f"reason-{number}": float(number) for number in range(6)}
    found = named(of_job(job(waiting=waiting), {}), "rankscope_job_pending_seconds")
    assert [one.value for one in found] == [5.0, 4.0, 3.0, 2.0]


def test_the_four_newest_notices_of_a_jobs_nodes_have_series():
    notices = {f"gpu-{number}": {"maintenance": float(number)} for number in range(6)}
    found = named(
        of_job(job(nodes=frozenset(notices)), notices),
        "rankscope_job_node_notice_timestamp_seconds",
    )
    assert [one.value for one in found] == [5.0, 4.0, 3.0, 2.0]


def test_a_job_of_which_there_is_much_to_say_has_25_series():
    roles = tuple(Replicas(f"role-{number}", wanted=number, active=1) for number in range(7))
    crowded = job(
        waiting={f"reason-{number}": float(number) for number in range(6)},
        startup={f"phase-{number}": 1.0 for number in range(9)},
        interruptions=1,
        progress={"replicas": roles, "elastic": (1, 8)},
    )
    assert len(list(of_job(crowded, {}, "gpus"))) == 25


def looked(*of_each_look):
    known = Completions()
    for at, jobs in enumerate(of_each_look):
        known.look(jobs, (), (one.top.uid for one in jobs), frozenset(), float(at))
    return known


def test_sums_are_kept_of_sixteen_classes_and_the_others_together():
    known = looked([job(job_class=f"class-{number}") for number in range(20)])
    assert {key[1] for key in known.totals} == {*(f"class-{n}" for n in range(16)), "other"}


def test_sums_are_kept_of_256_namespaces_and_the_others_together():
    known = looked([job(namespace=f"team-{number}") for number in range(260)])
    assert {key[0] for key in known.totals} == {*(f"team-{n}" for n in range(256)), "other"}


def test_jobs_durations_are_counted_from_a_minute_to_thirty_days():
    bounds = (60, 600, 3600, 14400, 43200, 86400, 259200, 604800, 2592000)
    ends = [
        job(number, progress={"outcome": "succeeded", "ended": float(bound)})
        for number, bound in enumerate(bounds)
    ]
    known = looked([], ends)
    value = known.durations["research"].value()
    assert value.buckets == tuple((bound, count) for count, bound in enumerate(bounds, 1))


def test_jobs_starts_are_counted_from_a_second_to_a_day():
    bounds = (1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
    starts = [
        job(number, oldest_pod=1.0, newest_pod=1.0, startup={"image": float(bound)})
        for number, bound in enumerate(bounds)
    ]
    value = looked(starts).startups["research", "image"].value()
    assert value.buckets == tuple((bound, count) for count, bound in enumerate(bounds, 1))


def test_the_ends_of_4096_jobs_are_remembered_one_by_one():
    ends = [
        job(number, progress={"outcome": "succeeded", "ended": 1.0 + number})
        for number in range(4097)
    ]
    known = looked([], ends)
    assert (len(known.ends), known.forgotten) == (4096, 1.0)


def test_a_thousand_jobs_have_series(monkeypatch):
    found = [job(number) for number in range(1001)]
    monkeypatch.setattr("rankscope_analyzers.watch.cluster_jobs.jobs", lambda *_: tuple(found))
    view = SimpleNamespace(
        objects=(),
        pods=(),
        gone=(),
        whole=True,
        conditions={},
        followed=frozenset(),
        nodes=None,
        quotas=(),
    )
    cluster = ClusterJobs(lambda: view)
    cluster.look(100.0)
    assert len(named(cluster.samples(), "rankscope_job_state")) == 1000


def kept(job_id, number=0):
    return {job_id: {f"kind-{n}": ["gpu_compute", [0], "s", None] for n in range(number)}}


def test_32_incidents_of_a_job_are_restored_and_4096_jobs():
    assert len(IncidentHistory.of(kept("team/a", 33)).kept()["team/a"]) == 32
    many = {f"team/{number}": {} for number in range(4097)}
    restored = IncidentHistory.of(many).kept()
    assert len(restored) == 4096
    assert "team/0" not in restored


@pytest.mark.parametrize(("age", "remembered"), [(86399.0, 1), (86400.0, 0)])
def test_an_incident_that_is_over_is_remembered_for_a_day(age, remembered):
    history = IncidentHistory()
    history._jobs["team/a"] = {"gpu_compute": IncidentState("gpu_compute", (0,), "s", 1000.0)}
    history.update(report(), 1000.0 + age)
    assert len(history.kept().get("team/a", ())) == remembered


class Endless:
    """A file that notes how much of it is asked for."""

    name = "state"

    def __init__(self):
        self.asked = []

    def open(self, mode):
        return self

    def read(self, count):
        self.asked.append(count)
        return b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def with_name(self, name):
        return Path("/nonexistent") / name


def test_512_mib_of_a_file_are_read_and_a_byte_that_says_whether_there_is_more():
    file = Endless()
    with pytest.raises(StoreError, match="does not begin"):
        FileStore(file).read()
    assert file.asked == [(512 << 20) + 1]


@pytest.mark.parametrize(("characters", "whole"), [(4096, 1), (4097, 0)])
def test_a_part_has_a_name_of_4096_characters(characters, whole):
    name = "n" * characters
    document = (
        b'{"format": "rankscope watch state", "version": 1, "saved": 1.0}\n'
        b'{"part": "job", "name": "%s", "value": 1}\n{"parts": 1}\n' % name.encode()
    )
    assert len(parsed(document).parts) == whole


def test_state_of_another_version_is_refused():
    with pytest.raises(StoreError, match="of version 2, expected 1"):
        parsed(b'{"format": "rankscope watch state", "version": 2, "saved": 1.0}\n')


class Maps:
    """An API server with one ConfigMap, that notes how long it is given."""

    def __init__(self, status):
        self.status, self.seconds, self.written = status, [], ""

    def get(self, path, query, seconds):
        self.seconds.append(seconds)
        return Answer(200, {})

    def put(self, path, body, seconds):
        self.seconds.append(seconds)
        self.written = body["data"]["state"]
        return Answer(self.status, body)


def test_requests_for_a_config_map_end_after_ten_seconds():
    api = Maps(200)
    store = ConfigMapStore(api, "state", "rankscope")
    assert store.read() is None
    assert store.write([], 1.0) == 0
    assert api.seconds == [10.0, 10.0]


@pytest.mark.parametrize(
    ("status", "sentence"), [(409, "written by another watch"), (404, "create it empty")]
)
def test_a_config_map_that_cannot_be_written_is_explained(status, sentence):
    store = ConfigMapStore(Maps(status), "state", "rankscope")
    store.read()
    with pytest.raises(StoreError, match=sentence):
        store.write([], 1.0)
