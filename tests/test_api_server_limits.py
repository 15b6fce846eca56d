"""How long the API server has to answer, how much it may answer, and how much is asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kubernetes.client.exceptions import ApiException

from rankscope_analyzers.intake import cluster, known_agents, kubernetes_api
from rankscope_analyzers.intake.cluster import ClusterError, ForbiddenError, NodeAgents
from rankscope_analyzers.intake.kubernetes_api import Answer, NoAnswerError


def test_an_api_server_has_less_time_once_addresses_are_known():
    asked = []

    def look_up(seconds):
        asked.append(seconds)
        return NodeAgents({"n": "http://a:1"})

    known = known_agents.KnownAgents(look_up, vouched=False)
    known.now()
    known.now()
    assert asked == [20.0, 10.0]


def test_an_agent_without_a_named_port_is_asked_at_its_default_one(monkeypatch):
    pod = {
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"nodeName": "n"},
        "status": {"podIP": "10.0.0.1"},
    }
    asked = []
    monkeypatch.setattr(cluster, "agent_pods", lambda *given: asked.append(given) or [pod])
    assert cluster.agents_of_cluster() == {"n": "http://10.0.0.1:9877"}
    assert asked[0][1] == 20.0


class Core:
    """Kubernetes' core API; notes what it is asked."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        def request(*given, **options):
            self.asked.append(options)
            return SimpleNamespace(data=b'{"items": []}')

        return request


def test_two_thousand_warnings_are_asked_for_and_pods_within_twenty_seconds(monkeypatch):
    core = Core()
    monkeypatch.setattr(cluster, "core_api", lambda access: core)
    cluster.warnings(None)
    cluster.agent_pods()
    cluster.pods_of("team")
    assert core.asked[0]["limit"] == 2000
    assert [options["_request_timeout"] for options in core.asked] == [20.0, 20.0, 20.0]


@pytest.mark.parametrize(("status", "forbidden"), [(403, True), (401, False), (404, False)])
def test_one_status_says_that_the_user_may_not_ask(status, forbidden):
    with pytest.raises(ClusterError) as raised, cluster.refused("list"):
        raise ApiException(status, "no")
    assert isinstance(raised.value, ForbiddenError) is forbidden


class Urllib:
    """A response as urllib3 has it."""

    def __init__(self, pieces):
        self.pieces, self.sizes = pieces, []

    def read1(self, size):
        self.sizes.append(size)
        return next(self.pieces, b"")

    def close(self):
        pass


def test_an_api_server_answers_64_mib():
    piece = bytes(1 << 20)
    whole = Urllib(iter([piece] * 64))
    assert len(kubernetes_api._whole(whole)) == 64 << 20
    assert set(whole.sizes) == {1 << 16}
    with pytest.raises(NoAnswerError, match="more than 67108864 bytes"):
        kubernetes_api._whole(Urllib(iter([piece] * 64 + [b"x"])))


def test_an_event_of_a_watch_has_4_mib():
    piece = b"x" * (1 << 20)
    (line,) = kubernetes_api._lines(Urllib(iter([*[piece] * 4, b"\n"])))
    assert len(line) == 4 << 20
    with pytest.raises(NoAnswerError, match="more than 4194304 bytes"):
        list(kubernetes_api._lines(Urllib(iter([*[piece] * 4, b"x"]))))


def test_what_an_api_server_says_is_cut_at_three_hundred_characters():
    assert 290 <= Answer(500, {"message": "x" * 5000}).message.count("x") <= 300


def test_events_of_an_answer_with_another_status_are_none(monkeypatch):
    api = kubernetes_api.KubernetesApi.__new__(kubernetes_api.KubernetesApi)
    for status, pieces in ((200, [b"{}\n{}\n"]), (410, [b"{}"])):
        response = Urllib(iter(pieces))
        response.status = status
        monkeypatch.setattr(api, "_asked", lambda *_, found=response: found, raising=False)
        answers = list(api.lines("/", {}, 1.0))
        assert [one.status for one in answers] == [status] * (2 if status == 200 else 1)
