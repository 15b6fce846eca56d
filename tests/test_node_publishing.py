"""Findings on nodes as conditions and Events of Kubernetes, under the shipped admission policy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import kubeconfigs
from fake_nodes import READY, FakeNodes
from rankscope_analyzers import cli
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.findings.advice import ADVICE
from rankscope_analyzers.findings.finding import Finding, RankLocation, Where
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.watch import cluster_nodes, node_publisher
from rankscope_analyzers.watch.cluster_nodes import ClusterNodes
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.leadership import SingleInstance
from rankscope_analyzers.watch.node_conditions import GPU, LINK, TYPES, problems
from rankscope_analyzers.watch.node_publisher import NodePublisher

HEARTBEAT_SECONDS = 300.0
NOW = 1_760_000_000.0


def finding(kind="gpu_memory", nodes=("gpu-07",), summary="GPU 3 lost rows.", **changes) -> Finding:
    values = {
        "layer": "kernel",
        "severity": "page",
        "job_id": "team/a",
        "action": "Drain the node.",
    }
    values |= {"runbook": "RankscopeGpuMemoryError", "where": Where(nodes=nodes), **changes}
    return Finding(kind=kind, summary=summary, **values)


def report(*found: Finding, nodes=("gpu-07", "gpu-08"), **changes) -> JobReport:
    """Return the report on a job of one rank a node."""
    places = {rank: RankLocation(rank, node) for rank, node in enumerate(nodes)}
    values = {"job_id": "team/a", "verdict": None, "frame": None, "incidents": ()}
    values |= {"observations": found, "locations": places, "unobserved": (), "sources": ()}
    return JobReport(**{**values, "made_unix_seconds": NOW, **changes})


def incident(cause: Finding, *others: Finding, until=None) -> Incident:
    values = {"where": cause.where, "severity": "page", "summary": "s", "action": "a"}
    values |= {"runbook": "r", "confidence": 1.0, "cost": None, "since_unix_seconds": None}
    return Incident(cause=cause, findings=others, until_unix_seconds=until, **values)


def test_a_node_has_the_worst_problem_of_each_type_and_a_problem_names_its_kind():
    mild = finding("thermal_slowdown", severity="ticket", summary="It is hot.")
    link = finding("link_down", summary="mlx5_0 is down.")
    found = problems([report(finding(), mild, link), report(finding(nodes=("gpu-08",)))])
    assert found == problems([report(link, mild, finding()), report(finding(nodes=("gpu-08",)))])
    assert found.keys() == {"gpu-07", "gpu-08"}
    assert found["gpu-07"].keys() == {GPU, LINK}
    one = found["gpu-07"][GPU]
    assert (one.status, one.reason) == ("True", "GpuMemory")
    assert one.message == "GPU 3 lost rows. Drain the node."


def test_causes_and_what_they_explain_count_while_an_incident_lasts():
    slow = finding("gpu_compute", layer="training")
    now = report(incidents=(incident(slow, finding()),))
    assert problems([now])["gpu-07"].keys() == {GPU}
    assert problems([report(incidents=(incident(finding(), until=NOW),))]) == {}
    assert problems([report(finding(until_unix_seconds=NOW))]) == {}
    beside = replace(incident(slow, until=NOW), other_causes=(finding(),))
    assert problems([report(incidents=(beside,))])["gpu-07"].keys() == {GPU}


def test_what_pods_could_have_written_accuses_no_node():
    """Step times, logs, their own crashes, and what their programs have GPUs and hosts do."""
    by_pods = {
        "gpu_compute",
        "data_loader",
        "network_link",
        "hang",
        "app",
        "oom_kill",
        "crash_loop",
    }
    by_pods |= {"cpu_pressure", "disk_full", "shm_full", "collective_timeout", "congestion"}
    assert by_pods <= ADVICE.keys()
    assert TYPES.keys() <= ADVICE.keys()
    assert problems([report(*(finding(kind) for kind in sorted(by_pods)))]) == {}


def test_what_is_about_a_whole_rack_or_no_node_at_all_is_not_about_a_node():
    many = tuple(f"gpu-{n:02d}" for n in range(17))
    assert problems([report(finding(nodes=many))]) == {}
    assert len(problems([report(finding(nodes=many[:16]))])) == 16
    for odd in ("../pods", "GPU 7", "a" * 254, ""):
        assert problems([report(finding(nodes=(odd,)))]) == {}


@pytest.fixture
def api(tmp_path, monkeypatch):
    server = FakeNodes("gpu-07", "gpu-08", "gpu-09")
    kubeconfigs.point_at(server.url, tmp_path, monkeypatch)
    yield server
    assert server.denied == []
    server.close()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def said():
    return []


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def publisher(api, said, clock):
    return NodePublisher(ClusterNodes(), said.append, clock)


def writes(api: FakeNodes) -> int:
    return sum(one.startswith("PATCH") for one in api.asked)


def test_a_problem_comes_stays_and_goes_with_an_event_each_time_it_changes(api, publisher, clock):
    publisher.publish([report(finding())], NOW)
    one = api.conditions("gpu-07")[GPU]
    assert (one["status"], one["lastTransitionTime"]) == ("True", "2025-10-09T08:53:20Z")
    publisher.publish([report(finding())], NOW + 30)
    assert writes(api) == 1
    clock.now += HEARTBEAT_SECONDS
    publisher.publish([report(finding())], NOW + 300)
    kept = api.conditions("gpu-07")[GPU]
    assert kept["lastHeartbeatTime"] == "2025-10-09T08:58:20Z"
    assert kept["lastTransitionTime"] == one["lastTransitionTime"]
    publisher.publish([report()], NOW + 330)
    over = api.conditions("gpu-07")[GPU]
    assert (over["status"], over["reason"]) == ("False", "NoProblem")
    assert over["lastTransitionTime"] == "2025-10-09T08:58:50Z"
    assert [(e["type"], e["reason"]) for e in api.events] == [
        ("Warning", "RankscopeGpuMemory"),
        ("Normal", "RankscopeNoProblem"),
    ]
    assert {e["regarding"]["name"] for e in api.events} == {"gpu-07"}
    assert api.conditions("gpu-07")["Ready"] == READY
    assert api.nodes["gpu-08"]["status"]["conditions"] == [READY]


@pytest.mark.parametrize(
    "unseen", [[], [report(nodes=("gpu-08",))], [report(missing=("no agent of gpu-07",))]]
)
def test_of_a_node_that_is_not_seen_nothing_is_known(api, publisher, unseen):
    publisher.publish([report(finding())], NOW)
    publisher.publish(unseen, NOW + 30)
    one = api.conditions("gpu-07")[GPU]
    assert (one["status"], one["reason"]) == ("Unknown", "NotObserved")
    assert len(api.events) == 1


def test_another_watch_goes_on_from_what_nodes_have(api, publisher, said, clock):
    publisher.publish([report(finding())], NOW)
    after = NodePublisher(ClusterNodes(), said.append, clock)
    after.publish([report(finding())], NOW + 60)
    assert len(api.events) == 1
    after.publish([report()], NOW + 90)
    publisher.forget()
    publisher.publish([report(finding())], NOW + 120)
    assert [e["type"] for e in api.events] == ["Warning", "Normal", "Warning"]
    assert said == []


def test_nodes_of_large_clusters_are_read_page_by_page(api, publisher, monkeypatch):
    monkeypatch.setattr(cluster_nodes, "NODES_OF_A_PAGE", 2)
    publisher.publish([report(finding(nodes=("gpu-09",)))], NOW)
    publisher.forget()
    publisher.publish([report(nodes=("gpu-09",))], NOW + 30)
    assert api.conditions("gpu-09")[GPU]["status"] == "False"
    assert sum(one.startswith("GET") for one in api.asked) == 4


def test_writes_are_limited_and_what_is_left_is_written_the_next_time(api, publisher, monkeypatch):
    monkeypatch.setattr(node_publisher, "MOST_WRITES", 2)
    found = [report(finding(nodes=("gpu-07", "gpu-08", "gpu-09")))]
    publisher.publish(found, NOW)
    assert writes(api) == 2
    publisher.publish(found, NOW + 30)
    publisher.publish(found, NOW + 60)
    assert writes(api) == 3
    assert len(api.events) == 3


def test_writing_ends_when_its_time_is_over(api, publisher, clock, monkeypatch):
    slow = publisher._writer.apply
    monkeypatch.setattr(
        publisher._writer,
        "apply",
        lambda *a: (setattr(clock, "now", clock.now + 6.0), slow(*a)),
    )
    publisher.publish([report(finding(nodes=("gpu-07", "gpu-08", "gpu-09")))], NOW)
    assert writes(api) == 2


def test_the_longest_sentence_fits_the_policy_and_shows_every_character(api, publisher):
    odd = finding(summary="\x1b[31m" + "lost \u202e" * 400)
    publisher.publish([report(odd, finding("link_down", summary="x" * 5000))], NOW)
    own = [one for one in api.conditions("gpu-07").values() if one["type"] != "Ready"]
    assert [len(one["message"]) for one in own] == [1024, 1024]
    assert all(one["message"].isprintable() for one in own)
    assert len(api.events) == 2


NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.mark.parametrize("name", ["gpu-07", "a" * 253, f"{'a' * 199}.b", f"{'a' * 198}-.b.c"])
def test_events_have_names_whatever_their_node_is_called(tmp_path, monkeypatch, name):
    server = FakeNodes(name)
    kubeconfigs.point_at(server.url, tmp_path, monkeypatch)
    NodePublisher(ClusterNodes(), print).publish([report(finding(nodes=(name,)))], NOW)
    server.close()
    (event,) = server.events
    made = event["metadata"]["generateName"] + "x7k2p"
    assert NAME.fullmatch(made)
    assert len(made) <= 253


def test_a_refusal_is_said_once_and_ends_nothing(api, publisher, said):
    api.status = 403
    for second in range(3):
        publisher.publish([report(finding())], NOW + second)
    (sentence,) = said
    assert "are not published: nodes cannot be listed: 403" in sentence
    api.status = 0
    publisher.publish([report(finding())], NOW + 30)
    assert said[1:] == ["conditions of nodes are published again"]
    assert GPU in api.conditions("gpu-07")


ALL = [report(finding(nodes=("gpu-07", "gpu-08", "gpu-09")))]


def test_an_event_that_is_refused_waits_and_delays_no_other_node(api, publisher, said):
    api.refused["POST"] = 500
    publisher.publish(ALL, NOW)
    assert writes(api) == 3
    assert api.events == []
    (sentence,) = said
    assert sentence.startswith("Events about nodes are not published: an Event about node gpu-07")
    api.refused.clear()
    publisher.forget()
    publisher.publish(ALL, NOW + 30)
    publisher.publish(ALL, NOW + 60)
    assert [one["regarding"]["name"] for one in api.events] == ["gpu-07", "gpu-08", "gpu-09"]
    assert {one["eventTime"][:19] for one in api.events} == {"2025-10-09T08:53:20"}
    assert said[1:] == ["Events about nodes are published again"]


def test_events_wait_for_an_hour(api, publisher, said):
    api.refused["POST"] = 403
    publisher.publish([report(finding())], NOW)
    publisher.publish([report(finding())], NOW + 3599)
    assert len(said) == 1
    publisher.publish([report(finding())], NOW + 3600)
    assert said[1:] == ["Events about nodes could not be published in time and are left out: 1"]


def test_events_that_the_time_did_not_suffice_for_follow_one_at_least_at_a_time(
    api, publisher, clock, monkeypatch
):
    slow = publisher._writer.apply
    monkeypatch.setattr(
        publisher._writer, "apply", lambda *a: (setattr(clock, "now", clock.now + 4.0), slow(*a))
    )
    publisher.publish(ALL, NOW)
    assert (writes(api), len(api.events)) == (3, 1)
    publisher.publish(ALL, NOW + 30)
    assert (writes(api), len(api.events)) == (3, 3)


def test_a_node_that_is_refused_keeps_no_other_from_being_written(
    api, publisher, said, monkeypatch
):
    monkeypatch.setattr(node_publisher, "MOST_WRITES", 2)
    monkeypatch.setattr(node_publisher, "MOST_RETRIED", 1)
    api.refused |= {"nodes/gpu-07/": 422, "nodes/gpu-08/": 422}
    publisher.publish(ALL, NOW)
    publisher.publish(ALL, NOW + 30)
    assert GPU in api.conditions("gpu-09")
    assert "node gpu-07 cannot be written: 422" in said[0]
    api.refused.clear()
    publisher.publish(ALL, NOW + 60)
    publisher.publish(ALL, NOW + 90)
    assert all(GPU in api.conditions(node) for node in ("gpu-07", "gpu-08"))
    assert said[-1] == "conditions of nodes are published again"


def test_a_node_that_is_gone_is_forgotten(api, publisher, said):
    gone = [report(finding(nodes=("gone", "gpu-07")))]
    publisher.publish(gone, NOW)
    assert GPU in api.conditions("gpu-07")
    assert said == []


@pytest.mark.parametrize("words", [("--agent", "a:1"), ("--cluster", "--once")])
def test_publishing_takes_a_cluster_and_a_watch_that_goes_on(words, capsys):
    assert cli.main(["watch", *words, "--publish-nodes"]) == 1
    assert "--publish-nodes needs --cluster" in capsys.readouterr().err


class Recorder(NodePublisher):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def publish(self, reports, now):
        self.calls.append(f"publish {len(reports)}")

    def forget(self):
        self.calls.append("forget")


class Standby(SingleInstance):
    def held(self):
        return False


def test_a_watch_publishes_after_each_evaluation_and_one_that_stands_by_forgets(monkeypatch):
    monkeypatch.setattr(watch_command.time, "sleep", lambda _: None)
    nodes = Recorder()
    source = watch_command.JobSource(lambda: Gathered((), JobEvidence()), nodes=nodes)
    for leadership in (SingleInstance(), Standby()):
        exporter = FindingsExporter(leadership)
        watch_command.run_cycle(source, exporter, leadership, 1.0, ErrorLog(print))
    assert nodes.calls == ["publish 0", "forget"]


def test_one_module_writes_events_and_nodes():
    folder = Path(node_publisher.__file__).parent.parent
    writers = {
        path.name
        for path in folder.rglob("*.py")
        if re.search(r"patch_node|create_namespaced_event|patch_namespaced", path.read_text())
    }
    assert writers == {"cluster_nodes.py"}
