"""Limits of how findings on nodes are published: how many, how often, and in which requests."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kubernetes.client.exceptions import ApiException

from rankscope_analyzers.findings.finding import Finding, Where
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.watch import cluster_nodes
from rankscope_analyzers.watch.node_conditions import problems
from rankscope_analyzers.watch.node_publisher import NodePublisher, PublishError
from recording_api import RecordingApi


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


@pytest.fixture
def cluster(monkeypatch):
    api = RecordingApi()
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
