"""What an agent answers about a job that stands: part by part, RAS's report, and to whom."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import urllib.request

import pytest

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.sources.evidence import node_evidence, ras_report
from rankscope_agent.sources.evidence.ras_report import RasReports
from rankscope_agent.sources.nccl_ras.client import Reply
from rankscope_agent.sources.training.reader import RingStepSource
from running_agent import running_agent
from standing_jobs import NOW, Clock, evidence_of, standing_ring


def test_the_parts_of_one_question_take_one_look_at_the_rings(tmp_path, monkeypatch):
    standing_ring(tmp_path / "rings")
    clock = Clock()
    evidence = evidence_of(tmp_path / "rings", clock)
    looks = []
    plain = RingStepSource.rings_of
    monkeypatch.setattr(
        RingStepSource, "rings_of", lambda rings, job: (looks.append(job), plain(rings, job))[1]
    )
    for name in ("processes", "kernel"):
        evidence.part(name, "team/job")
    assert looks == [None]
    evidence.part("logs", "team/job")
    assert looks == [None, None]
    standing_ring(tmp_path / "rings", "9-9.ring", rank=1)
    clock.now += node_evidence.KNOWN_SECONDS
    assert [one["rank"] for one in evidence.part("processes", "team/job")["processes"]] == [0, 1]


def test_ras_is_asked_once_in_a_while_and_its_report_is_kept_as_it_is():
    reply = b"SERVER PROTOCOL 2\nOK\nOK\n" + json.dumps({"communicators": []}).encode()
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    asked.append(connection.recv(4096))
                    connection.sendall(reply)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        clock = Clock()
        reports = RasReports(ListenAddress("127.0.0.1", server.getsockname()[1]), clock)
        first = reports.report()
        assert reports.report() is first
        clock.now += 10.0
        second = reports.report()
        thread.join(10.0)
    assert (first["format"], first["text"]) == ("json", '{"communicators": []}')
    assert (len(asked), second["taken_unix_seconds"]) == (2, NOW + 10.0)
    assert reports.report() is second
    assert "--nccl.ras-address" in RasReports(None).report()["not_read"]


def status_of(agent, path):
    connection = http.client.HTTPConnection(agent.url.removeprefix("http://"))
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse().status


def test_evidence_is_served_to_callers_with_the_token_alone(tmp_path):
    token = tmp_path / "token"
    token.write_text("correct-horse-battery")
    token.chmod(0o600)
    paths = ("/api/v1/evidence?job=team/job&part=processes", "/api/v1/hangs")
    with running_agent(tmp_path, f"--web.token-file={token}") as agent:
        for path in paths:
            assert status_of(agent, path) == 401
            request = urllib.request.Request(agent.url + path)
            request.add_header("Authorization", "Bearer correct-horse-battery")
            with urllib.request.urlopen(request) as answer:
                assert json.load(answer)["node"] == "test-node"


def test_evidence_comes_in_one_line_which_python_writes_in_no_time(tmp_path):
    with running_agent(tmp_path) as agent:
        url = f"{agent.url}/api/v1/evidence?job=team/job&part=processes"
        with urllib.request.urlopen(url) as answer:
            text = answer.read()
    assert text.count(b"\n") == 1
    assert json.loads(text)["processes"] == []


REFUSED = {
    "/api/v1/evidence": 400,
    "/api/v1/evidence?job=a/b": 400,
    "/api/v1/evidence?job=a/b&part=environ": 400,
    "/api/v1/evidence?job=a/b&part=logs&x=1": 400,
    "/api/v1/hangs?x=1": 400,
    "/api/v1/hangs?id=1800000000-00000000": 404,
    "/api/v1/hangs?id=../../etc/passwd": 404,
}


def test_other_questions_are_refused(tmp_path):
    with running_agent(tmp_path) as agent:
        for path, status in REFUSED.items():
            assert status_of(agent, path) == status


@pytest.mark.parametrize(("seconds", "asked"), [(2.9, 1), (3.1, 2), (-0.1, 2)])
def test_ras_is_asked_again_after_three_seconds(seconds, asked, monkeypatch):
    reports, clock = [], Clock()
    monkeypatch.setattr(
        ras_report, "ask", lambda *_: reports.append(1) or Reply("json", str(len(reports)))
    )
    of = RasReports(ListenAddress("127.0.0.1", 28028), clock)
    of.report()
    clock.now += seconds
    assert of.report()["text"] == str(asked)
