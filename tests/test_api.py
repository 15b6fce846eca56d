"""What the agent answers over HTTP, from a real server on the loopback with fake sources."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import re
import socket
import threading

import pytest

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.contract.model import STEP_COLUMNS, RankIdentity
from rankscope_agent.serving.api import Api
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.flight_recorder.launches import Launch, Launches
from rankscope_agent.sources.flight_recorder.windows import NS
from rankscope_agent.web.access import OPEN
from rankscope_agent.web.server import WebServer
from served_agents import PATIENCE_SECONDS, RANK, Agent, Steps, WithoutSource, Working, row
from test_flight_recorder_collector import TEAM

MAX_HEAVY = 4


@pytest.fixture
def agent():
    made = Agent({"training": Working, "rdma": WithoutSource})
    made.registry.run_once()
    yield made
    made.close()


def test_metrics_come_as_text_or_openmetrics_and_as_gzip_when_asked(agent):
    status, headers, plain = agent.ask("/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'rankscope_steps_total{job_id="<b>&",rank="0"} 7.0\n' in plain
    _, headers, packed = agent.ask("/metrics", **{"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == plain
    _, headers, page = agent.ask("/metrics", Accept="application/openmetrics-text;version=1.0.0")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0;")
    assert page.endswith(b"# EOF\n")


def test_healthz_says_what_is_not_seen_and_why(agent):
    agent.registry.stop()
    states = agent.registry.states()
    status, headers, body = agent.ask("/healthz")
    found = json.loads(body)
    assert headers["Content-Type"] == "application/json"
    assert found["node"] == "node-1"
    assert found["collectors"]["training"]["success"] is True
    assert found["collectors"]["training"]["age_seconds"] >= 0
    assert found["collectors"]["rdma"]["success"] is False
    assert found["collectors"]["rdma"]["last_success_unix_seconds"] is None
    assert found["unobserved"]["nvml"] == "switched off"
    # run_once leaves no thread behind, and without one nothing will ever be seen again.
    assert not any(state.scheduled for state in states)
    assert (status, found["status"]) == (503, "broken")


def test_the_landing_page_shows_states_and_escapes_what_others_wrote(agent):
    status, headers, body = agent.ask("/")
    text = body.decode()
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "<script" not in text
    assert "no data: &lt;script&gt;" in text
    assert '<td class="ok">works</td>' in text
    assert 'href="/metrics"' in text


def test_the_landing_page_links_every_path_that_is_answered(agent):
    """All but its own."""
    routes = Api("node-1", agent.registry, agent.steps, 100).routes()
    linked = re.findall('href="([^"]+)"', agent.ask("/")[2].decode())
    assert sorted(linked) == sorted(set(routes) - {"/"})


def test_the_landing_page_shows_a_failure_that_quotes_a_name_outside_of_utf8():
    class Failing:
        def collect(self):
            raise NoData("bad name a\udcffb")

    agent = Agent({"training": Failing})
    try:
        agent.registry.run_once()
        status, _, body = agent.ask("/")
        assert (status, b"bad name a\\udcffb" in body) == (200, True)
        assert agent.ask("/healthz")[0] == 503
    finally:
        agent.close()


def test_ranks_are_listed_with_all_that_is_known(agent):
    _, _, body = agent.ask("/api/v1/ranks")
    found = json.loads(body)
    assert found["node"] == "node-1"
    assert found["ranks"][0]["job_id"] == "ns/train"
    assert found["ranks"][0]["local_world_size"] is None
    assert RankIdentity(**found["ranks"][0]) == RANK


@pytest.mark.parametrize("headers", [{}, {"Accept-Encoding": "gzip"}])
def test_step_records_are_streamed(agent, headers):
    agent.steps.rows = [row(step, 100.0 + step) for step in range(2000)]
    status, answer, body = agent.ask("/api/v1/steps?job=ns/train&since=100.5", **headers)
    assert (status, answer["Transfer-Encoding"], answer["Content-Length"]) == (200, "chunked", None)
    assert answer["Content-Encoding"] == headers.get("Accept-Encoding")
    found = json.loads(gzip.decompress(body) if headers else body)
    assert tuple(found["columns"]) == STEP_COLUMNS
    assert [tuple(each) for each in found["rows"]] == agent.steps.rows
    assert agent.steps.asked == [("ns/train", 100.5)]


def test_the_first_step_records_have_a_path_of_their_own(agent):
    agent.steps.rows = [row(step, 100.0 + step) for step in range(20)]
    status, _, body = agent.ask("/api/v1/step_starts?job=ns/train&since=100.5")
    found = json.loads(body)
    assert (status, tuple(found["columns"]), found["truncated"]) == (200, STEP_COLUMNS, False)
    assert [tuple(each) for each in found["rows"]] == agent.steps.rows[:1]
    assert agent.steps.asked == [("ns/train", 100.5)]


@pytest.mark.parametrize("query", ["", "?job=&since="])
def test_without_parameters_all_step_records_are_given(agent, query):
    agent.ask(f"/api/v1/steps{query}")
    assert agent.steps.asked == [(None, 0.0)]


def test_an_old_client_gets_step_records_without_chunks(agent):
    head, _, body = agent.raw(b"GET /api/v1/steps HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert len(json.loads(body)["rows"]) == 2


def test_step_records_that_break_off_do_not_look_complete(agent, caplog):
    def breaking():
        yield from (row(step, 1.0) for step in range(5000))
        raise RuntimeError("ring went away")

    agent.steps.steps = lambda *_: breaking()
    with pytest.raises(http.client.IncompleteRead):
        agent.ask("/api/v1/steps")
    assert agent.ask("/metrics")[0] == 200
    assert "ring went away" in caplog.text


def test_a_source_that_cannot_be_read_is_a_500_with_a_sentence(agent):
    def unreadable(*_):
        raise PermissionError(13, "Permission denied")
        yield

    agent.steps.steps = unreadable
    status, _, body = agent.ask("/api/v1/steps")
    assert (status, body) == (500, b"Reading the answer's source failed: Permission denied.\n")


def test_windows_of_collectives_are_given_by_job_and_time(agent):
    for job_id, seconds in (("ns/train", 100), ("ns/train", 200), ("ns/other", 200)):
        launch = Launch("0", "all_reduce", 5, seconds * NS - 10, -1)
        agent.windows.add(TEAM, job_id, 3, 1, seconds * NS, Launches("gloo", (launch,), True, 0))
    status, answer, body = agent.ask("/api/v1/collectives?job=ns/train&since=150")
    assert (status, answer["Content-Type"]) == (200, "application/json")
    (window,) = json.loads(body)["windows"]
    assert (window["rank"], window["end_ns"], window["seq"]) == (3, 200 * NS, [5])
    assert len(json.loads(agent.ask("/api/v1/collectives")[2])["windows"]) == 3
    assert agent.ask("/api/v1/collectives?since=x")[0] == 400


@pytest.mark.parametrize("query", ["since=x", "since=nan", "since=1e999", "sinc=1", "x" * 99])
def test_a_bad_query_is_a_400_with_one_sentence(agent, query):
    status, headers, body = agent.ask(f"/api/v1/steps?{query}")
    assert (status, headers["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert body.endswith(b".\n")
    assert body.count(b"\n") == 1
    assert agent.steps.asked == []


def test_a_query_of_many_fields_is_not_taken_apart(agent):
    assert agent.ask("/metrics?" + "a=1&" * 100)[0] == 400


def test_an_unknown_path_is_a_404_that_names_the_known_ones_and_not_the_asked_one(agent):
    status, headers, body = agent.ask("/<script>")
    assert (status, headers["X-Content-Type-Options"]) == (404, "nosniff")
    assert b"/metrics" in body
    assert b"script" not in body


@pytest.mark.parametrize("path", ["/metrics", "/", "/api/v1/steps", "/nowhere"])
def test_head_gives_the_head_alone(agent, path):
    answer = agent.raw(f"HEAD {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404" if path == "/nowhere" else b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")
    assert answer.count(b"\r\n\r\n") == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(agent, method):
    status, headers, _ = agent.ask("/metrics", method=method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_connection_serves_many_requests(agent):
    connection = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        for path in ("/metrics", "/nowhere", "/api/v1/steps", "/healthz", "/metrics"):
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            assert response.getheader("Connection") is None
            used = connection.sock
            assert used is not None


@pytest.mark.parametrize("before", [b"", b"Content-Length: 0\r\n"])
def test_the_body_of_a_request_is_not_taken_for_the_next_one(agent, before):
    inner = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    head = b"GET /nowhere HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n"
    request = head % (before, len(inner)) + inner
    answer = agent.raw(request)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /%s HTTP/1.1\r\n\r\n" % (b"a" * 70000),
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"BREW /<script> HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_nonsense_is_refused_and_the_agent_goes_on(agent, request_bytes):
    with contextlib.suppress(ConnectionResetError):
        assert b" 200 " not in agent.raw(request_bytes).partition(b"\r\n")[0]
    assert agent.ask("/metrics")[0] == 200


def test_few_long_answers_are_sent_at_once_and_short_ones_go_on(agent):
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(*_):
        yield row(1, 1.0)
        begun.release()
        go_on.wait(PATIENCE_SECONDS)

    agent.steps.steps = slow
    answers = []
    clients = [
        threading.Thread(target=lambda: answers.append(agent.ask("/api/v1/steps")[0]))
        for _ in range(MAX_HEAVY)
    ]
    for client in clients:
        client.start()
    for _ in clients:
        assert begun.acquire(timeout=PATIENCE_SECONDS)
    assert agent.ask("/api/v1/steps")[0] == 503
    assert agent.ask("/metrics")[0] == 200
    go_on.set()
    for client in clients:
        client.join(PATIENCE_SECONDS)
    assert answers == [200] * MAX_HEAVY
    agent.steps.steps = Steps().steps
    assert agent.ask("/api/v1/steps")[0] == 200


def test_an_empty_host_listens_on_ipv4_too_and_the_url_names_the_real_port():
    with WebServer(ListenAddress("", 0), {}, OPEN) as listening:
        assert listening.url.endswith(f":{listening.server_port}")
        assert listening.server_port != 0
        socket.create_connection(("127.0.0.1", listening.server_port), PATIENCE_SECONDS).close()
