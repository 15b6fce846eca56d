"""The log of incidents, and the webhook that posts it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from faulty_clusters import Cluster, pressure
from rankscope_analyzers.watch.announcer import Announcer
from rankscope_analyzers.watch.incident_history import IncidentHistory
from rankscope_analyzers.watch.incident_log import IncidentLog, LogError
from rankscope_analyzers.watch.store import FileStore, Part
from rankscope_analyzers.watch.webhook import SIGNATURE, Webhook, alertmanager_body
from simulated_jobs import Fault, Job

NODES = {"gpu-0": "healthy", "gpu-1": "thermal@5"}
SLOW = Job(ranks=16, steps=120, faults=(Fault("compute", (13,), 0.5, first_step=60),))
PATIENCE_SECONDS = 90.0


@pytest.fixture(scope="module")
def slow():
    return Cluster(NODES, SLOW, [pressure({})]).report()


def ended(report):
    over = tuple(replace(one, until_unix_seconds=1_760_000_100.0) for one in report.incidents)
    return replace(report, incidents=over)


def of_other_ranks(report):
    moved = tuple(replace(one, where=replace(one.where, ranks=(2,))) for one in report.incidents)
    return replace(report, incidents=moved)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def told(path, *looks, history=None):
    """Write what changes from look to look; return the lines."""
    history, log = history or IncidentHistory(), IncidentLog(path)
    for number, report in enumerate(looks):
        log.write(history.update(report, 1000.0 + number), 1000.0 + number)
    return lines_of(path)


def test_each_change_of_an_incident_is_one_line(tmp_path, slow):
    lines = told(tmp_path / "log", slow, slow, of_other_ranks(slow), ended(slow), slow)
    assert [line["change"] for line in lines] == ["opened", "changed", "closed", "opened"]
    assert [line["sequence"] for line in lines] == [1, 2, 3, 4]
    assert [line["number"] for line in lines] == [1, 2, 3, 1]
    assert len({line["incident"] for line in lines[:3]}) == 1
    assert lines[3]["incident"] != lines[0]["incident"]


def test_a_line_says_what_somebody_has_to_know(tmp_path, slow):
    (line,) = told(tmp_path / "log", slow)
    (incident,) = slow.incidents
    assert line["schema"] == 1
    assert line["time"] == "1970-01-01T00:16:40.000+00:00"
    assert (line["job_id"], line["kind"], line["fault"]) == (
        slow.job_id, "thermal_slowdown", "gpu_compute",
    )  # fmt: skip
    assert (line["ranks"], line["nodes"], line["rank_count"]) == ([13], ["gpu-1"], 1)
    assert line["lost_fraction"] == incident.cost.lost_fraction
    assert line["runbook"] == incident.runbook
    assert line["summary"].startswith("opened: rank 13")
    assert line["until"] is None


def test_a_watch_that_lost_its_state_tells_nothing_twice(tmp_path, slow):
    told(tmp_path / "log", slow)
    lines = told(tmp_path / "log", slow, ended(slow))
    assert [line["change"] for line in lines] == ["opened", "closed"]
    assert [line["number"] for line in lines] == [1, 2]
    assert lines[0]["incident"] == lines[1]["incident"]


def test_a_watch_that_lost_its_state_tells_what_changed_meanwhile(tmp_path, slow):
    told(tmp_path / "log", slow)
    lines = told(tmp_path / "log", of_other_ranks(slow))
    assert [(line["change"], line["number"], line["ranks"]) for line in lines] == [
        ("opened", 1, [13]),
        ("changed", 2, [2]),
    ]


def test_an_incident_that_ended_while_no_watch_ran_is_closed(tmp_path, slow):
    path = tmp_path / "log"
    told(path, slow)
    announcer = Announcer(lambda _: None, IncidentLog(path))
    gone = replace(slow, incidents=())
    announcer.tell((), [replace(gone, missing=("gpu-1",))], 2000.0)
    assert len(lines_of(path)) == 1
    announcer.tell((), [gone], 2000.0)
    announcer.tell((), [gone], 2001.0)
    assert [line["change"] for line in lines_of(path)] == ["opened", "closed"]


def test_an_incident_that_was_kept_and_not_told_is_told(tmp_path, slow):
    path = tmp_path / "log"
    announcer = Announcer(lambda _: None, IncidentLog(path))
    announcer.tell((), [slow], 2000.0)
    announcer.tell((), [slow], 2001.0)
    assert [(line["change"], line["ranks"]) for line in lines_of(path)] == [("opened", [13])]


def test_no_pair_is_repeated_wherever_a_watch_is_killed(tmp_path, slow):
    """Each look is made by a watch that knows the log, and what was saved some looks ago."""
    path, looks = tmp_path / "log", [slow, of_other_ranks(slow), ended(slow), slow, ended(slow)]
    for behind in range(4):
        path.unlink(missing_ok=True)
        saved = [IncidentHistory().kept()]
        for number, report in enumerate(looks):
            history = IncidentHistory.of(saved[max(0, len(saved) - 1 - behind)])
            IncidentLog(path).write(history.update(report, 1000.0 + number), 1000.0 + number)
            saved.append(history.kept())
        pairs = [(line["incident"], line["number"]) for line in lines_of(path)]
        assert len(pairs) == len(set(pairs))
        sequences = [line["sequence"] for line in lines_of(path)]
        assert sequences == sorted(set(sequences))


def test_a_line_that_was_cut_short_is_not_counted_and_spoils_no_other(tmp_path, slow):
    path = tmp_path / "log"
    told(path, slow)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    log, history = IncidentLog(path), IncidentHistory()
    history.update(slow, 1000.0)
    log.write(history.update(ended(slow), 1001.0), 1001.0)
    text = path.read_bytes().splitlines()
    assert len(text) == 3
    assert json.loads(text[2])["change"] == "closed"
    assert json.loads(text[2])["sequence"] == 2


def test_what_stands_in_the_log_that_is_no_line_is_passed_over(tmp_path, slow):
    path = tmp_path / "log"
    path.write_text('[]\n{"schema":2}\nnull\n{"schema":1,"sequence":true}\n\xff\n')
    assert [line["sequence"] for line in IncidentLog(path).after(0)] == []
    IncidentLog(path).write(IncidentHistory().update(slow, 1000.0), 1000.0)
    assert [line["sequence"] for line in IncidentLog(path).after(0)] == [1]


@pytest.mark.parametrize("unknown", [float("nan"), float("inf"), 1e18, -1e18])
def test_figures_that_make_no_sense_are_unknown_and_cost_no_other_line(tmp_path, slow, unknown):
    (incident,) = slow.incidents
    cost = replace(incident.cost, lost_fraction=float("nan"))
    odd = replace(incident, since_unix_seconds=unknown, cost=cost)
    history, path = IncidentHistory(), tmp_path / "log"
    events = [
        *history.update(replace(slow, job_id="team/odd", incidents=(odd,)), 1000.0),
        *history.update(slow, 1000.0),
    ]
    IncidentLog(path).write(events, 1000.0)
    first, second = lines_of(path)
    assert (first["job_id"], first["since"], first["lost_fraction"]) == ("team/odd", None, None)
    assert second["job_id"] == slow.job_id
    assert second["since"] is not None


def test_the_log_is_private_and_no_link_is_followed(tmp_path, slow):
    path = tmp_path / "log"
    told(path, slow)
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with pytest.raises(LogError):
        IncidentLog(tmp_path / "link").write(IncidentHistory().update(slow, 1.0), 1.0)


def test_changes_wait_for_a_log_that_cannot_be_written(tmp_path, slow):
    said = []
    announcer = Announcer(said.append, IncidentLog(tmp_path / "later" / "log"))
    history = IncidentHistory()
    announcer.tell(history.update(slow, 1000.0), [slow], 1000.0)
    announcer.tell((), [slow], 1001.0)
    assert [text.startswith("changes of incidents cannot be written") for text in said[1:]] == [
        True
    ]
    (tmp_path / "later").mkdir()
    announcer.tell((), [slow], 1002.0)
    assert [line["change"] for line in lines_of(tmp_path / "later" / "log")] == ["opened"]


class Receiver:
    """Takes webhooks, refuses them, or hangs."""

    def __init__(self):
        self.bodies = []
        self.answers = []
        self.released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == 0:
                    receiver.released.wait(PATIENCE_SECONDS)
                receiver.bodies.append((json.loads(body), body, self.headers.get(SIGNATURE)))
                self.send_response(status or 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def sequences(self):
        return [int(body["commonAnnotations"]["sequence"]) for body, _, _ in self.bodies]

    def has(self, count):
        until = time.monotonic() + PATIENCE_SECONDS
        while len(self.bodies) < count and time.monotonic() < until:
            time.sleep(0.01)
        return len(self.bodies) >= count


def line(sequence, change="opened"):
    return {
        "schema": 1, "sequence": sequence, "incident": f"{sequence:016x}", "number": 1,
        "change": change, "time": "2026-01-01T00:00:00.000+00:00", "job_id": "team/job",
        "fault": "gpu_compute", "kind": "thermal_slowdown", "ranks": [13], "severity": "page",
        "summary": "opened: rank 13 computes longer", "since": "2025-12-31T23:59:00.000+00:00",
        "until": None, "action": "drain the node", "runbook": "https://example.org/r",
    }  # fmt: skip


@contextlib.contextmanager
def posting(receiver, again=lambda _: (), **more):
    said = []
    webhook = Webhook(receiver.url, again, said.append, pause_seconds=0.01, **more)
    try:
        yield webhook, said
    finally:
        webhook.close()


def test_the_body_is_alertmanagers_of_version_4():
    body = alertmanager_body(line(7), "http://example.org/hook?key=secret")
    assert body["version"] == "4"
    assert set(body) == {
        "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels",
        "commonLabels", "commonAnnotations", "externalURL", "alerts",
    }  # fmt: skip
    (alert,) = body["alerts"]
    assert set(alert) == {
        "status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint",
    }  # fmt: skip
    assert (alert["status"], alert["endsAt"]) == ("firing", "0001-01-01T00:00:00Z")
    assert alert["startsAt"] == "2025-12-31T23:59:00.000+00:00"
    assert "secret" not in json.dumps(body)
    assert all(isinstance(value, str) for value in alert["labels"].values())
    over = alertmanager_body(line(8, "closed"), "x")
    assert (over["status"], over["alerts"][0]["endsAt"]) == (
        "resolved", "2026-01-01T00:00:00.000+00:00",
    )  # fmt: skip


def test_what_is_posted_is_signed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    with Receiver() as receiver, posting(receiver, secret=secret) as (webhook, _):
        webhook.post([line(1)])
        assert receiver.has(1)
        _, body, signature = receiver.bodies[0]
        expected = hmac.new(b"open sesame", body, hashlib.sha256).hexdigest()
        assert signature == f"sha256={expected}"


def test_nothing_is_signed_with_an_empty_secret(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("\n")
    with Receiver() as receiver, posting(receiver, secret=secret) as (webhook, said):
        webhook.post([line(1)])
        until = time.monotonic() + PATIENCE_SECONDS
        while not said and time.monotonic() < until:
            time.sleep(0.01)
        assert [text for text in said if "secret contains no secret to sign with" in text]
        assert receiver.bodies == []
        secret.write_text("open sesame")
        assert receiver.has(1)


def test_a_line_is_posted_until_it_is_taken_in_order():
    with Receiver() as receiver, posting(receiver) as (webhook, said):
        receiver.answers = [500, 503, 200, 400]
        webhook.post([line(1), line(2), line(3)])
        assert receiver.has(5)
        assert receiver.sequences() == [1, 1, 1, 2, 3]
        assert [text for text in said if "500" in text]
        until = time.monotonic() + PATIENCE_SECONDS
        while webhook.delivered < 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert webhook.kept() == {"delivered": 3, "waiting": []}
        assert [text for text in said if "400 to one, which is not posted again" in text]


def test_a_receiver_that_hangs_delays_nobody_and_takes_no_memory():
    log = [line(number) for number in range(1, 1201)]
    with (
        Receiver() as receiver,
        posting(receiver, lambda after: (one for one in log if one["sequence"] > after)) as (
            webhook,
            _,
        ),
    ):
        receiver.answers = [0]
        for one in log:
            webhook.post([one])
        assert webhook.waiting == 1000
        assert receiver.bodies == []
        receiver.released.set()
        assert receiver.has(1200)
        assert receiver.sequences() == list(range(1, 1201))


def test_lines_of_a_log_that_cannot_be_posted_hold_up_no_other(tmp_path):
    log = tmp_path / "log"
    lacking = {name: value for name, value in line(1).items() if name != "summary"}
    log.write_text("".join(f"{json.dumps(one)}\n" for one in (lacking, line(2), line(3))))
    with Receiver() as receiver, posting(receiver, IncidentLog(log).after) as (webhook, said):
        webhook.restore({"delivered": 0})
        webhook.post([])
        assert receiver.has(2)
        assert receiver.sequences() == [2, 3]
    assert said == []


def test_what_was_not_taken_before_a_restart_is_posted_after_it():
    log = [line(number) for number in range(1, 6)]

    def again(after):
        return (one for one in log if one["sequence"] > after)

    with Receiver() as receiver, posting(receiver, again) as (webhook, _):
        webhook.restore({"delivered": 3})
        webhook.post([])
        assert receiver.has(2)
        assert receiver.sequences() == [4, 5]


def test_a_state_that_is_cut_in_half_is_replaced_by_the_one_before(tmp_path):
    store = FileStore(tmp_path / "state")
    store.write([Part("watch", "", {"number": 1})], 1000.0)
    store.write([Part("watch", "", {"number": 2}), Part("job", "a/b", 7)], 2000.0)
    assert [part.value for part in store.read().parts] == [{"number": 2}, 7]
    whole = (tmp_path / "state").read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 2):
        (tmp_path / "state").write_bytes(whole[:length])
        kept = store.read()
        assert [part.value for part in kept.parts] == [{"number": 1}]
        assert "the previous one is used" in kept.problems[0]
    (tmp_path / "state").unlink()
    assert [part.value for part in store.read().parts] == [{"number": 1}]


def test_a_first_state_that_is_cut_in_half_is_used_as_far_as_it_goes(tmp_path):
    store = FileStore(tmp_path / "state")
    store.write([Part("watch", "", 1), Part("job", "a/b", 7)], 1000.0)
    whole = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(whole[: len(whole) - 20])
    assert [part.value for part in store.read().parts] == [1]
