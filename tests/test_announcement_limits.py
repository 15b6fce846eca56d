"""Limits of how changes of incidents are announced: at each and just beyond it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
from email.message import Message
from urllib.error import HTTPError

import pytest

from rankscope_analyzers.watch import incident_log
from rankscope_analyzers.watch.announcer import Announcer
from rankscope_analyzers.watch.incident_history import Event
from rankscope_analyzers.watch.incident_log import IncidentLog, LogError
from rankscope_analyzers.watch.webhook import SIGNATURE, Webhook
from test_incident_log import line


class Receiver:
    """Answers with one status, and notes how it was asked."""

    def __init__(self, status=200):
        self.status, self.requests, self.seconds = status, [], []

    def open(self, request, deadline):
        self.requests.append(request)
        self.seconds.append(deadline.seconds)
        if self.status != 200:
            raise HTTPError(request.full_url, self.status, "", Message(), None)
        return contextlib.nullcontext()


class Pauses:
    """Ends a webhook's thread after so many pauses, and notes how long they were."""

    def __init__(self, most):
        self.most, self.seconds = most, []

    def is_set(self):
        return len(self.seconds) >= self.most

    def wait(self, seconds):
        self.seconds.append(seconds)


def webhook(receiver, again=lambda _: (), **more):
    one = Webhook("http://receiver/hook", again, lambda _: None, entry=receiver, **more)
    one._thread = object()  # nobody posts but the test
    return one


def test_a_watch_elsewhere_learns_of_the_512_incidents_that_opened_last(tmp_path):
    log = IncidentLog(tmp_path / "log")
    open_ = [[f"job-{number}", "gpu", f"i{number}", 1, "kind", []] for number in range(513)]
    log.restore({"sequence": 513, "open": open_})
    kept = log.kept()
    assert kept["sequence"] == 513
    assert [row[0] for row in kept["open"]] == [f"job-{number}" for number in range(1, 513)]


@pytest.mark.parametrize(
    ("status", "again"),
    [
        *((status, False) for status in (400, 404, 405, 410, 413, 415, 422)),
        *((status, True) for status in (401, 403, 408, 409, 429, 500, 503)),
    ],
)
def test_what_will_never_be_taken_is_not_posted_again(status, again):
    assert webhook(Receiver(status))._is_delivered(line(1)) != again


def test_a_receiver_has_ten_seconds_for_its_answer():
    receiver = Receiver()
    assert webhook(receiver)._is_delivered(line(1))
    assert receiver.seconds == [10.0]


def test_pauses_double_from_a_second_to_a_minute():
    one = webhook(Receiver(503))
    one._closing = Pauses(9)
    one.post([line(1)])
    one._run()
    assert one._closing.seconds == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_a_thousand_lines_wait_and_further_ones_are_read_from_the_log():
    lines = [line(number) for number in range(1, 1003)]
    one = webhook(Receiver(), again=lambda after: lines[after:])
    one.post(lines[:1000])
    assert (one.waiting, one._left_out) == (1000, False)
    one.post(lines[1000:])
    assert (one.waiting, one._left_out) == (1000, True)
    one._waiting.clear()
    one._refill()
    assert (one.waiting, one._left_out) == (1000, True)


@pytest.mark.parametrize(("waiting", "kept"), [(32, 32), (33, 32)])
def test_32_lines_that_wait_are_kept_for_a_watch_elsewhere(waiting, kept):
    one = webhook(Receiver())
    one.post([line(number) for number in range(1, waiting + 1)])
    assert len(one.kept()["waiting"]) == kept


@pytest.mark.parametrize(("length", "signed"), [(4096, 4096), (4097, 4096)])
def test_secrets_have_4096_bytes(tmp_path, length, signed):
    (tmp_path / "secret").write_bytes(b"x" * length)
    receiver = Receiver()
    webhook(receiver, secret=tmp_path / "secret")._is_delivered(line(1))
    (request,) = receiver.requests
    digest = hmac.new(b"x" * signed, request.data, hashlib.sha256).hexdigest()
    assert request.get_header(SIGNATURE.capitalize()) == f"sha256={digest}"


def opened(key, ranks=(), sentence="opened"):
    return Event("team/job", "thermal_slowdown", "opened", sentence, key, ranks)


def written(path, event):
    (one,) = IncidentLog(path).write([event], 1000.0)
    return one


def test_lines_name_64_ranks_and_have_texts_of_2000_characters(tmp_path):
    one = written(tmp_path / "log", opened("a", tuple(range(65)), "x" * 2001))
    assert len(one["ranks"]) == 64
    assert len(one["summary"]) == 2000
    whole = written(tmp_path / "log", opened("b", tuple(range(64)), "x" * 2000))
    assert whole["summary"] == "x" * 2000


def test_65_536_incidents_are_remembered_as_open(tmp_path):
    log = IncidentLog(tmp_path / "log")
    logged = {("team/job", str(number)): None for number in range(65_536)}
    log._take(logged, line(1) | {"fault": "one more"})
    assert len(logged) == 65_536
    assert next(iter(logged)) == ("team/job", "1")


def test_64_mib_of_the_end_of_a_log_are_read(tmp_path):
    first, second = (f"{json.dumps(line(number))}\n".encode() for number in (1, 2))
    with (tmp_path / "log").open("wb") as file:
        file.write(first + second)
        file.truncate((64 << 20) + len(first))
    assert [one["sequence"] for one in incident_log._read(tmp_path / "log")] == [2]


class Full:
    """A log whose disk is full."""

    def write(self, events, now):
        raise LogError("no space left")


def test_ten_thousand_changes_wait_for_a_log_that_cannot_be_written():
    announcer = Announcer(lambda _: None, Full())
    announcer.tell([opened(str(number)) for number in range(10_001)], (), 0.0)
    assert len(announcer._unwritten) == 10_000
    assert announcer._unwritten[0].key == "1"


class FullAtTheSecondWrite(IncidentLog):
    """A log whose disk is full when the second lines are written."""

    writes = 0

    def write(self, events, now):
        self.writes += 1
        if self.writes == 2:
            raise LogError("no space left")
        return super().write(events, now)


def test_what_was_written_before_the_disk_was_full_is_posted_once(tmp_path):
    said, log, hook = [], FullAtTheSecondWrite(tmp_path / "log"), webhook(Receiver())
    announcer = Announcer(said.append, log, hook)
    announcer.tell([opened("a"), opened("a", (1,))], (), 0.0)
    assert said[-1] == "changes of incidents cannot be written yet: no space left"
    for now in (1.0, 2.0):
        announcer.tell((), (), now)
    written = [one["sequence"] for one in log.after(0)]
    assert [one["sequence"] for one in hook._waiting] == written == [1, 2]
