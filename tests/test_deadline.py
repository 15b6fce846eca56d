"""Every answer that the analyzers wait for has one deadline, wherever its server drips or hangs."""

import contextlib
import itertools
import json
import socket
import ssl
import threading

import pytest

import kubeconfigs
from certificates import Authority
from dripping import DRIPS, Dripping, dripping
from fake_api_server import FakeApiServer
from rankscope_analyzers.intake import (
    agent_client,
    agent_pages,
    agent_timeouts,
    cluster,
    prometheus_api,
)
from rankscope_analyzers.intake import deadline as deadlines
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_timeouts import AgentTimeouts
from rankscope_analyzers.intake.cluster import ClusterError
from rankscope_analyzers.intake.credentials import Entry
from rankscope_analyzers.intake.deadline import Deadline, connect
from rankscope_analyzers.intake.prometheus_api import Prometheus, PrometheusError

LATE_SECONDS = 1.5
SHARED_SECONDS = 6.0
SHORT_TIMEOUTS = 9

SECONDS = 0.4


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    for module in (agent_client, prometheus_api):
        monkeypatch.setattr(module, "WHOLE_ANSWER_SECONDS", SECONDS)
        monkeypatch.setattr(module, "TIMEOUT_SECONDS", 2 * SECONDS)


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_what_is_left_of_a_deadline_is_for_all_operations_together():
    clock = Clock()
    one = Deadline(60.0, 10.0, clock=clock)
    assert (one.left(), one.left(3.0)) == (10.0, 3.0)
    clock.now += 55.0
    assert one.left() == pytest.approx(5.0)
    assert one.missed(TimeoutError("timed out")) == "does not answer in time: timed out"
    clock.now += 5.0
    with pytest.raises(TimeoutError, match="has not ended in 60 s"):
        one.left()
    assert one.missed(TimeoutError()) == "has not ended its answer in 60 s"


@pytest.mark.parametrize("drip", DRIPS)
def test_an_agent_that_drips_is_given_up(drip):
    with Dripping(DRIPS[drip]) as server:
        with pytest.raises(AgentError, match=r"has not ended its answer in 0\.4 s"):
            Agent(server.url).json("/healthz")
        assert server.connections == 1


@pytest.mark.parametrize("drip", DRIPS)
def test_a_prometheus_that_drips_is_given_up(drip):
    with Dripping(DRIPS[drip]) as server:
        with pytest.raises(PrometheusError, match=r"has not ended its answer in 0\.4 s"):
            Prometheus(server.url).instant("up", 0.0)
        assert server.connections == 1


@pytest.mark.parametrize("drip", DRIPS)
def test_an_api_server_that_drips_is_given_up(drip, tmp_path, monkeypatch):
    with Dripping(DRIPS[drip]) as server:
        kubeconfigs.point_at(server.url, tmp_path, monkeypatch)
        with pytest.raises(ClusterError, match="cannot be reached"):
            cluster.agents_of_cluster(timeout_seconds=SECONDS)
        assert server.connections == 1


def test_a_server_that_accepts_and_says_nothing_is_given_up():
    with Dripping(lambda: iter(())) as server, pytest.raises(AgentError, match="has not ended"):
        Agent(server.url).text("/metrics")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.sign("server", "IP:127.0.0.1")
    context.load_cert_chain(pair.cert, pair.key)
    return context


@pytest.mark.parametrize("drip", DRIPS)
def test_under_tls_it_is_the_same(drip, authority, tls):
    with Dripping(DRIPS[drip], tls) as server:
        entry = Entry(ca_file=authority.cert)
        with pytest.raises(AgentError, match=r"has not ended its answer in 0\.4 s"):
            Agent(server.url, entry).json("/healthz")
        with pytest.raises(PrometheusError, match=r"has not ended its answer in 0\.4 s"):
            Prometheus(server.url, entry).instant("up", 0.0)


RECORD = b"\x16\x03\x03\x40\x00"
"""The head of a handshake record of 16 KiB under TLS 1.2, of which the rest drips in."""


@pytest.mark.parametrize("answer", [dripping(RECORD, b"\x00"), lambda: iter(())])
def test_a_handshake_that_does_not_end_is_given_up(answer, authority):
    with Dripping(answer) as server, pytest.raises(AgentError, match="has not ended its answer"):
        Agent(f"https://127.0.0.1:{server.port}", Entry(ca_file=authority.cert)).json("/healthz")


def test_an_api_server_under_tls_is_asked_again_and_again_and_given_up_where_it_drips(
    authority, tls, tmp_path, monkeypatch
):
    server = FakeApiServer(tls=tls)
    try:
        kubeconfigs.point_at(server.url, tmp_path, monkeypatch, authority.cert)
        assert [cluster.agents_of_cluster() for _ in range(3)] == [{}, {}, {}]
    finally:
        server.close()
    with Dripping(DRIPS["headers"], tls) as bad:
        kubeconfigs.point_at(bad.url, tmp_path, monkeypatch, authority.cert)
        with pytest.raises(ClusterError, match="cannot be reached"):
            cluster.agents_of_cluster(timeout_seconds=SECONDS)


@contextlib.contextmanager
def full_backlog():
    """Give an address whose SYNs are dropped: a listener that accepts nobody, with a full queue."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as server,
        contextlib.ExitStack() as held,
    ):
        address = server.getsockname()
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield address


def test_an_address_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(agent_client, "WHOLE_ANSWER_SECONDS", 600.0)
    monkeypatch.setattr(agent_client, "TIMEOUT_SECONDS", 600.0)
    monkeypatch.setattr(deadlines, "CONNECT_SECONDS", SECONDS)
    with full_backlog() as (host, port):
        with pytest.raises(TimeoutError):
            connect((host, port), Deadline(600.0, connect_seconds=SECONDS))
        with pytest.raises(TimeoutError):
            connect((host, port), Deadline(SECONDS, connect_seconds=600.0))


def test_a_name_that_nobody_looks_up_is_given_up(monkeypatch):
    ended, real = threading.Event(), socket.getaddrinfo

    def never(host, *arguments, **named):
        if host == "agent.example":
            if named.get("flags"):
                raise socket.gaierror("no number")
            ended.wait()
        return real(host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", never)
    try:
        with pytest.raises(AgentError, match="has not ended its answer"):
            Agent("http://agent.example:9877").json("/healthz")
    finally:
        ended.set()


def test_a_name_that_does_not_exist_is_said(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(AgentError, match=r"cannot be reached: .*not known"):
        Agent("http://nobody.invalid:9877").json("/healthz")


def test_all_addresses_of_a_name_are_tried(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        places = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", place)
            for place in (("127.0.0.1", 1), ("127.0.0.1", port))
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
        with connect(("two.example", port), Deadline(30.0)) as made:
            assert made.getpeername() == ("127.0.0.1", port)


def test_an_agent_that_was_late_gets_little_time_for_a_while_and_all_of_it_then():
    known, clock = AgentTimeouts(), Clock()
    late = Deadline(20.0, 10.0, clock=clock)
    clock.now += 10.0
    assert known.deadline("a", "/metrics", 20.0, 10.0).seconds == 20.0
    known.failed("a", "/metrics", late)
    given = [known.deadline("a", "/metrics", 20.0, 10.0) for _ in range(3 * SHORT_TIMEOUTS)]
    seconds = [one.seconds for one in given]
    short = seconds.index(20.0)
    assert SHORT_TIMEOUTS <= short < 2 * SHORT_TIMEOUTS
    assert set(seconds[:short]) == {SHARED_SECONDS}
    assert set(seconds[short:]) == {20.0}
    assert given[0].connect_seconds == LATE_SECONDS
    assert known.deadline("a", "/healthz", 20.0, 10.0).seconds == 20.0, "each path for itself"
    assert known.deadline("b", "/metrics", 20.0, 10.0).seconds == 20.0


def test_one_that_refuses_at_once_was_not_late_and_a_short_time_that_ends_begins_no_other():
    known, clock = AgentTimeouts(), Clock()
    quick = Deadline(20.0, 10.0, clock=clock)
    clock.now += LATE_SECONDS / 2
    known.failed("a", "/metrics", quick)
    assert known.deadline("a", "/metrics", 20.0, 10.0).seconds == 20.0
    short = Deadline(SHARED_SECONDS, connect_seconds=LATE_SECONDS, clock=clock)
    clock.now += LATE_SECONDS + 0.1
    known.failed("a", "/metrics", short)
    assert known.deadline("a", "/metrics", 20.0, 10.0).seconds == 20.0


def test_agents_that_are_gone_are_forgotten():
    known, clock = AgentTimeouts(), Clock()
    late = Deadline(20.0, 10.0, clock=clock)
    clock.now += 10.0
    for url in ("a", "b"):
        known.failed(url, "/metrics", late)
    known.keep(["b"])
    assert known.deadline("a", "/metrics", 20.0, 10.0).seconds == 20.0
    assert known.deadline("b", "/metrics", 20.0, 10.0).seconds == SHARED_SECONDS


@pytest.mark.parametrize(
    ("late_ones", "given"), [(1, 6.0), (64, 6.0), (65, 3.0), (128, 3.0), (250, 1.5), (2000, 1.5)]
)
def test_those_that_were_late_share_what_they_may_add_to_a_look(late_ones, given):
    known, clock = AgentTimeouts(), Clock()
    late = Deadline(20.0, 10.0, clock=clock)
    clock.now += 20.0
    urls = [f"agent-{number}" for number in range(late_ones)]
    for url in urls:
        known.failed(url, "/metrics", late)
    known.keep(urls)
    assert {known.deadline(url, "/metrics", 20.0, 10.0).seconds for url in urls} == {given}


def test_of_many_agents_as_many_late_ones_share_more():
    known, clock = AgentTimeouts(), Clock()
    late = Deadline(20.0, 10.0, clock=clock)
    clock.now += 20.0
    urls = [f"agent-{number}" for number in range(2048)]
    for url in urls[:205]:
        known.failed(url, "/metrics", late)
    known.keep(urls)
    assert {known.deadline(url, "/metrics", 20.0, 10.0).seconds for url in urls[:205]} == {6.0}


@pytest.mark.parametrize(
    ("agents", "asked"),
    [(1, 64), (256, 64), (260, 65), (1024, 256), (2048, 512), (16_384, 512)],
)
def test_a_quarter_of_all_agents_is_asked_at_a_time(agents, asked):
    assert agent_timeouts.at_once(agents) == asked


class Together:
    """An agent that answers only once all of its group are asked at the same time."""

    def __init__(self, number, group):
        self.url = self.base = self.node = f"gpu-{number}"
        self._group = group

    def json(self, path):
        self._group.wait(30.0)
        return {"node": self.node}

    def packed(self, path):
        return ""


def test_pages_of_so_many_agents_are_asked_for_at_a_time():
    group = threading.Barrier(128)
    found = agent_pages.poll([Together(number, group) for number in range(512)])
    assert len(found.pages) == 512


def test_what_is_usually_there_at_once_is_not_waited_for_as_long_again():
    known, clock = AgentTimeouts(), Clock()
    late = Deadline(5.0, 5.0, clock=clock)
    clock.now += 5.0
    known.failed("a", "/healthz", late)
    assert known.deadline("a", "/healthz", 5.0, 5.0).seconds == 3.0


def test_a_late_agent_is_asked_with_little_time_and_comes_back_when_it_answers(monkeypatch):
    """Its second answer is there in no time: it needs not wait until it is trusted again."""
    monkeypatch.setattr(agent_timeouts, "LATE_SECONDS", SECONDS / 2)
    monkeypatch.setattr(agent_timeouts, "SHORTER", 0.5)
    healthy = b'{"node": "n0"}'
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(healthy) + healthy
    answers = itertools.chain([DRIPS["body"]], itertools.repeat(lambda: iter([whole])))
    known = AgentTimeouts()
    with Dripping(lambda: next(answers)()) as server:
        agent = Agent(server.url, timeouts=known)
        with pytest.raises(AgentError, match=r"in 0\.4 s"):
            agent.json("/healthz")
        assert known.deadline(server.url, "/healthz", SECONDS, SECONDS).seconds == SECONDS / 2
        monkeypatch.setattr(agent_timeouts, "LATE_SECONDS", 60.0)
        assert agent.json("/healthz", seconds=60.0) == json.loads(healthy)
