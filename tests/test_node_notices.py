"""What nodes say of themselves in verdicts: why ranks ended there, never why one is slow."""

import json
import time
from datetime import datetime, timezone

import pytest

from fake_api_server import FakeApiServer, Store
from faulty_series import FAULTS, JOB, NODES, NOW, ODD, PLACES, Reading, observed
from kubeconfigs import point_at
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.metrics.cluster_jobs import JOB_NODE_NOTICE
from rankscope_analyzers import cli
from rankscope_analyzers.commands import connection
from rankscope_analyzers.fusion import causality, gather, job_reports
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake import node_notices
from rankscope_analyzers.intake.cluster import CURRENT, NodeAgents
from rankscope_analyzers.intake.credentials import NONE
from rankscope_analyzers.layers.node_notices import PHRASES
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from rankscope_analyzers.workloads.nodes import NOTICES

OTHER = NODES[0]
HERE = NODES[1]
"""That of the odd rank."""


RANKS = [
    Reading(training.RANK_INFO, {"job_id": JOB, "rank": str(rank)}, 1, node=place.node)
    for rank, place in PLACES.items()
]


def noticed(notice, since=NOW - 60, node=HERE, job=JOB):
    labels = {"job_id": job, "node": node, "notice": notice}
    return Reading(JOB_NODE_NOTICE, labels, since, node=node)


def report(*readings):
    evidence = JobEvidence(observed(*RANKS, *readings))
    (found,) = job_reports.reports(TimingResults(), evidence, NOW)
    return found


def causes(found):
    return [(one.cause.kind, one.where.ranks) for one in found.incidents]


def observations(found):
    return {(one.kind, one.where.nodes) for one in found.observations}


def test_there_are_words_for_each_notice():
    assert set(PHRASES) == set(NOTICES)


@pytest.mark.parametrize(
    ("notice", "ended", "cause"),
    [
        ("spot_interruption", "missing_rank", "node_leaving"),
        ("maintenance", "pod_preempted", "node_leaving"),
        ("scale_down", "pod_failed", "node_leaving"),
        ("not_ready", "missing_rank", "node_not_ready"),
        ("disk_pressure", "pod_failed", "node_pressure"),
    ],
)
def test_a_notice_explains_what_ended_on_its_node(notice, ended, cause):
    found = report(*FAULTS[ended], noticed(notice))
    (incident,) = found.incidents
    assert (incident.cause.kind, [one.kind for one in incident.findings]) == (cause, [ended])
    assert incident.where.nodes == (HERE,)
    assert incident.summary.startswith(f"node {HERE} {PHRASES[notice][1]}, since 20")
    assert incident.cause.owner == "platform"


@pytest.mark.parametrize(
    "elsewhere",
    [
        noticed("spot_interruption", node=OTHER),
        noticed("spot_interruption", since=NOW - 3 * 3600),
        noticed("cordoned", since=0),
        noticed("rebalance"),
    ],
)
def test_a_notice_of_another_node_or_of_long_ago_ended_nothing(elsewhere):
    found = report(*FAULTS["missing_rank"], elsewhere)
    assert causes(found) == [("missing_rank", (ODD,))]
    assert [nodes for _, nodes in observations(found)] == [(elsewhere.node,)]


def test_a_notice_about_a_node_of_another_job_is_not_this_ones():
    assert observations(report(noticed("not_ready", job="team/other"))) == set()


@pytest.mark.parametrize("notice", NOTICES)
def test_a_notice_alone_is_an_observation_and_accuses_nobody(notice):
    found = report(noticed(notice))
    assert (found.incidents, observations(found)) == ((), {(PHRASES[notice][0], (HERE,))})


def test_no_notice_explains_that_a_rank_is_slow():
    slow = causality.SLOW_RANK | causality.SLOW_INPUT | causality.SLOW_NETWORK
    for kind, _ in PHRASES.values():
        assert not causality.kind_of(kind).explains & slow


def test_a_hang_that_begins_as_its_node_stops_answering_is_told_with_it():
    stood = NOW - 3600  # since when the steps of the series stand
    (hung,) = report(*FAULTS["hang"], noticed("not_ready", since=stood)).incidents
    assert (hung.cause.kind, [one.kind for one in hung.findings]) == ("node_not_ready", ["hang"])
    found = report(*FAULTS["hang"], noticed("spot_interruption", since=stood))
    assert found.incidents[0].cause.kind == "hang"


# The API server.


def stamp(unix_seconds):
    return datetime.fromtimestamp(unix_seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name, *taints):
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "namespace": ""},
        "spec": {"taints": [{"key": key, "timeAdded": stamp(NOW - 60)} for key in taints]},
        "status": {},
    }


@pytest.fixture
def server(tmp_path, monkeypatch):
    one = FakeApiServer()
    point_at(one.url, tmp_path, monkeypatch)
    one.collections["/api/v1/nodes"] = Store()
    for found in (node(OTHER), node(HERE, "aws-node-termination-handler/spot-itn"), node("x")):
        one.collections["/api/v1/nodes"].put(found)
    yield one
    one.close()


def of_cluster():
    found = node_notices.from_cluster(CURRENT, NOW)
    return {(one.node, one.labels["notice"]): one.last for one in found.series}, found.not_read


def test_nodes_are_read_page_by_page_with_what_events_say_of_them(server, monkeypatch):
    monkeypatch.setattr(node_notices, "PAGE", "2")
    server.events = [
        {
            "metadata": {"uid": "e", "name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": "x"},
            "reason": "SpotInterrupted",
            "lastTimestamp": stamp(NOW - 30),
        }
    ]
    known = {(HERE, "spot_interruption"): NOW - 60, ("x", "spot_interruption"): NOW - 30}
    assert of_cluster() == (known, ())


def test_what_the_cluster_refuses_is_told(server):
    server.events = None
    known, (sentence,) = of_cluster()
    assert known == {(HERE, "spot_interruption"): NOW - 60}
    assert "Events: the API server answers 403 to verb list of events" in sentence
    server.forbidden.add("/api/v1/nodes")
    assert of_cluster() == (
        {},
        ("notices of nodes: the API server answers 403 to verb list of nodes",),
    )


def test_too_many_nodes_are_told_and_not_read(server, monkeypatch):
    monkeypatch.setattr(node_notices, "PAGE", "1")
    monkeypatch.setattr(node_notices, "MOST_PAGES", 2)
    assert of_cluster() == ({}, ("notices of nodes: there are more than 2 nodes",))


@pytest.fixture
def agents(monkeypatch):
    """Agents of a cluster whose pages say that a rank ended."""
    seen = Gathered((), JobEvidence(observed(*RANKS, *FAULTS["missing_rank"])))
    targets = connection.Targets(("127.0.0.1:1",), NONE, NodeAgents({}))
    monkeypatch.setattr(connection, "chosen_targets", lambda *_: targets)
    monkeypatch.setattr(gather, "of_agents", lambda *_, **_more: seen)


def diagnosed(capsys, *arguments):
    assert cli.main(["diagnose", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)[JOB]


def test_a_diagnosis_of_a_cluster_asks_for_its_nodes_and_keeps_the_answer(
    server, agents, capsys, tmp_path
):
    just_now = node(HERE, "aws-node-termination-handler/spot-itn")
    just_now["spec"]["taints"][0]["timeAdded"] = stamp(time.time() - 60)
    server.collections["/api/v1/nodes"].put(just_now)
    folder = str(tmp_path / "kept")
    now = diagnosed(capsys, "--cluster", "--save", folder)
    later = diagnosed(capsys, "--trace", folder)
    for document in (now, later):
        (incident,) = document["incidents"]
        assert incident["cause"]["kind"] == "node_leaving"
        assert "missing_rank" in json.dumps(incident)


def test_a_diagnosis_says_that_the_nodes_of_its_cluster_are_hidden(server, agents, capsys):
    server.forbidden.add("/api/v1/nodes")
    document = diagnosed(capsys, "--cluster")
    assert [one["cause"]["kind"] for one in document["incidents"]] == ["missing_rank"]
    assert any("403 to verb list of nodes" in one for one in document["unobserved"])
