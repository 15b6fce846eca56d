"""The last that is still taken and the first that is not, of each limit on NCCL's RAS."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_agent.sources.nccl_ras import client
from rankscope_agent.sources.nccl_ras import collector as ras
from rankscope_agent.sources.nccl_ras.client import RasError


@pytest.mark.parametrize(("deadline", "seconds"), [(8.0, 4.0), (10.0, 5.0), (60.0, 5.0)])
def test_a_question_to_ras_takes_five_seconds_or_half_of_the_deadline(deadline, seconds):
    config = SimpleNamespace(deadline_seconds=deadline, ras_address=None, ras_interval_seconds=60.0)
    assert ras.create(config)._seconds == seconds


@pytest.mark.parametrize(("seconds", "timeout"), [(5.0, 2), (10.0, 5), (1.0, 1)])
def test_ras_may_collect_for_half_of_the_question(monkeypatch, seconds, timeout):
    sent = []

    class Connection:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def sendall(self, data):
            sent.append(data.decode())

    monkeypatch.setattr(client.socket, "create_connection", lambda *to: Connection())
    monkeypatch.setattr(client, "_receive", lambda *of: b"SERVER PROTOCOL 2\nOK\nOK\ntext")
    client.ask("h", 1, seconds, "json")
    assert f"TIMEOUT {timeout}\n" in sent[0]


@pytest.mark.parametrize(("length", "taken"), [(4095, True), (4096, False)])
def test_an_answer_of_ras_before_its_report_has_4096_bytes_at_most(length, taken):
    received = b"SERVER PROTOCOL 2\n" + b"x" * length + b"\nOK\nreport"
    if taken:
        assert client._reply(received).text == "report"
        return
    with pytest.raises(RasError):
        client._reply(received)


@pytest.mark.parametrize(("size", "taken"), [(2 << 20, True), ((2 << 20) + 1, False)])
def test_a_reply_of_ras_has_two_mebibytes_at_most(size, taken):
    parts = iter([b"SERVER PROTOCOL 2\n".ljust(size), b""])
    connection = SimpleNamespace(settimeout=lambda left: None, recv=lambda most: next(parts))
    if taken:
        assert len(client._receive(connection, float("inf"))) == size
        return
    with pytest.raises(client.ReplyTooLargeError):
        client._receive(connection, float("inf"))
