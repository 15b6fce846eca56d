"""`rankscope doctor --cluster`: what it asks the API server, and what it says of many agents."""

from __future__ import annotations

import datetime

import pytest

import kubeconfigs
from fake_api_server import FakeApiServer
from pod_json import agents_pod, pod
from rankscope_agent.web.routes import Route, sentence
from rankscope_analyzers import cli
from rankscope_analyzers.doctor import agent_startup
from rankscope_analyzers.intake import cluster
from rankscope_analyzers.intake.agent_client import Agent, StatusError
from rankscope_analyzers.intake.cluster import ClusterError
from rankscope_analyzers.intake.credentials import Entry
from serving import answering

NOW = datetime.datetime(2026, 11, 22, 12, 0, tzinfo=datetime.timezone.utc)


@pytest.fixture
def api(tmp_path, monkeypatch):
    server = FakeApiServer()
    kubeconfigs.point_at(server.url, tmp_path, monkeypatch)
    yield server
    server.close()


def test_a_pod_of_a_namespace_is_looked_for_there_alone(api):
    """Who may list pods of one namespace may ask about its pods."""
    api.put(pod("w0", "team"))
    assert cluster.placed_pod("team/w0")["spec"]["nodeName"] == "n1"
    assert {path for _, path, _ in api.requests} == {"/api/v1/namespaces/team/pods"}


def test_a_name_without_a_namespace_takes_a_right_to_all_and_says_how_to_do_without(api):
    api.faults.status = 403
    with pytest.raises(ClusterError, match=r"in all namespaces: name the pod as NAMESPACE/w0$"):
        cluster.placed_pod("w0")
    with pytest.raises(ClusterError, match=r"in namespace team$"):
        cluster.placed_pod("team/w0")


def test_doctor_asks_the_namespace_that_it_was_given_and_no_other(api, capsys):
    assert cli.main(["doctor", "--cluster", "--namespace", "observability"]) == 1
    assert "no agent runs in the cluster" in capsys.readouterr().err
    asked = {path for _, path, _ in api.requests}
    of = "/api/v1/namespaces/observability"
    assert asked == {f"{of}/pods", f"{of}/events"}


@pytest.mark.parametrize(
    ("namespace", "where"), [("team", "in namespace team"), (None, "in all namespaces")]
)
def test_what_was_refused_is_named_by_verb_and_resource(api, namespace, where):
    api.faults.status = 403
    with pytest.raises(ClusterError, match=f"answers 403 .* to verb list of pods {where}"):
        cluster.agent_pods(namespace)


def test_a_token_that_was_shown_and_refused_is_said_to_be_refused(tmp_path):
    (tmp_path / "token").write_text("a-token-that-is-none-of-theirs")
    routes = {"/healthz": Route(lambda request: sentence(401, "no"), "open")}
    with answering(routes) as url:
        with pytest.raises(StatusError, match=r"401: the token of .*/token was refused"):
            Agent(url, Entry(tmp_path / "token")).text("/healthz")
        with pytest.raises(StatusError, match="401: give --token-file"):
            Agent(url).text("/healthz")


def test_an_agent_that_has_no_credentials_to_compare_is_said_with_the_flags_that_help():
    routes = {"/healthz": Route(lambda request: sentence(403, "no"), "open")}
    said = r"403: this agent gives .* to clients with a token, .*--web\.token-file FILE"
    with answering(routes) as url, pytest.raises(StatusError, match=said):
        Agent(url).text("/healthz")


def test_of_many_silent_agents_a_few_are_named_and_the_rest_is_counted(tmp_path, capsys):
    routes = {
        "/healthz": Route(lambda request: sentence(200, "{}"), "open"),
        "/metrics": Route(lambda request: sentence(200, ""), "open"),
        "/api/v1/ranks": Route(lambda request: sentence(200, "{}"), "open"),
        "/api/v1/pods": Route(lambda request: sentence(200, "{}"), "open"),
    }
    with answering(routes) as url:
        silent = [f"http://127.0.0.1:{port}" for port in range(1, 31)]
        words = [word for one in [url, *silent] for word in ("--agent", one)]
        assert cli.main(["doctor", "--no-color", *words]) == 0
    out = capsys.readouterr().out
    assert out.count("cannot be reached") == 8
    assert "Not asked: 22 more agents" in " ".join(out.split())


LACKS = 'secret "rankscope-api-token" not found'


def event(name: str, kind: str = "Pod", minutes_ago: float = 1.0) -> dict:
    seen = (NOW - datetime.timedelta(minutes=minutes_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"kind": kind, "name": name, "namespace": "rankscope"}
    return {"involvedObject": about, "message": LACKS, "lastTimestamp": seen}


def waits(name: str) -> dict:
    found = agents_pod("http://10.0.0.7:9877", "rankscope")
    found["metadata"]["name"], found["status"]["phase"] = name, "Pending"
    return found


def test_events_of_pods_that_run_or_are_gone_are_forgotten():
    waiting, running = waits("rankscope-agent-a"), waits("rankscope-agent-b")
    running["status"]["phase"] = "Running"
    pods = [waiting, running]
    for name, kept in (
        ("rankscope-agent-a", 1),
        ("rankscope-agent-b", 0),
        ("rankscope-agent-c", 0),
    ):
        found = agent_startup.reasons([event(name)], pods, NOW.timestamp())
        assert len(found) == kept, name


def test_events_that_came_no_more_are_forgotten():
    """The DaemonSet's controller tries again after a quarter of an hour at the latest."""
    for minutes, kept in ((19, 1), (21, 0)):
        found = agent_startup.reasons(
            [event("rankscope-agent", "DaemonSet", minutes)], (), NOW.timestamp()
        )
        assert len(found) == kept
    undated = event("rankscope-agent", "DaemonSet") | {"lastTimestamp": None}
    assert len(agent_startup.reasons([undated], (), NOW.timestamp())) == 1
    odd = undated | {"series": {"lastObservedTime": "no time"}, "eventTime": 3}
    assert len(agent_startup.reasons([odd], (), NOW.timestamp())) == 1
