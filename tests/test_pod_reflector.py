import contextlib
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fake_api_server import FakeApiServer
from pod_json import pod, uid
from rankscope_agent.sources.pods import api_client, reflector
from rankscope_agent.sources.pods.api_client import ApiError, ApiServer
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.reflector import Reflector

GONE = 410
FIRST_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 30.0
START_JITTER_SECONDS = 30.0
SHARED = Path(__file__).resolve().parents[2] / "shared" / "golden" / "kubernetes"
KUBECTL = shutil.which("kubectl")


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    made = FakeApiServer(bookmark_seconds=0.2)
    yield made
    made.close()


class Following:
    """A reflector at work, whose pauses are noted and not waited for."""

    def __init__(self, server: FakeApiServer, account: Path) -> None:
        self.directory = PodDirectory()
        self.pauses: list[float] = []
        self._stopped = threading.Event()
        self.reflector = Reflector(
            ApiServer(server.url, account),
            self.directory,
            "n1",
            pause=self._pause,
            jitter=lambda: 0.5,
        )
        self._thread = threading.Thread(target=self.reflector.run, daemon=True)

    def _pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return self._stopped.wait(min(seconds, 0.02))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self.reflector.stop()
        self._thread.join(10)

    def names(self) -> list[str]:
        return sorted(found.name for found in self.directory.pods())


@pytest.fixture
def follow(server, tmp_path) -> Iterator[Callable[[], Following]]:
    with contextlib.ExitStack() as stack:

        def start() -> Following:
            following = Following(server, tmp_path)
            following.start()
            stack.callback(following.stop)
            stack.callback(server.close)
            return following

        yield start


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def test_pods_are_listed_once_and_then_watched(server, follow):
    server.put(pod("a", number=1))
    following = follow()
    assert eventually(lambda: following.names() == ["a"])
    server.put(pod("b", number=2))
    assert eventually(lambda: following.names() == ["a", "b"])
    server.delete("ml", "a")
    assert eventually(lambda: following.names() == ["b"])
    assert following.reflector.requests == {"list": 1, "watch": 1}
    queries = [query for _, _, query in server.requests]
    assert queries[0] == {"fieldSelector": "spec.nodeName=n1", "resourceVersion": "0"}
    assert queries[1]["allowWatchBookmarks"] == "true"
    assert 240 <= int(queries[1]["timeoutSeconds"]) <= 480


def test_the_first_list_waits_for_its_share_of_the_jitter(server, follow):
    following = follow()
    assert eventually(lambda: bool(following.reflector.requests["watch"]))
    assert following.pauses[0] == pytest.approx(START_JITTER_SECONDS / 2)


def test_a_pod_that_leaves_the_node_is_forgotten(server, follow):
    server.put(pod("a"))
    following = follow()
    assert eventually(lambda: following.names() == ["a"])
    moved = pod("a")
    moved["spec"]["nodeName"] = "n2"
    server.put(moved)
    assert eventually(lambda: following.names() == [])


def test_bookmarks_carry_the_version_forward_and_are_signs_of_life(server, follow):
    following = follow()
    assert eventually(lambda: following.directory.contact_unix_seconds is not None)
    before = following.directory.contact_unix_seconds
    assert eventually(lambda: following.directory.contact_unix_seconds != before)
    assert following.names() == []


def test_a_version_that_is_too_old_leads_to_one_new_list(server, follow):
    server.put(pod("a", number=1))
    following = follow()
    assert eventually(lambda: following.reflector.requests["watch"] == 1)
    server.faults.end_at_once = True
    assert eventually(lambda: following.reflector.requests["watch"] >= 2)
    server.forget_history()
    server.put(pod("c", number=3))
    server.faults.end_at_once = False
    assert eventually(lambda: following.names() == ["a", "c"])
    assert following.reflector.requests["list"] == 2


def test_an_event_cut_in_the_middle_is_sent_again(server, follow):
    following = follow()
    assert eventually(lambda: following.reflector.requests["watch"] == 1)
    server.faults.cut_mid_line = 1
    server.put(pod("late"))
    assert eventually(lambda: following.names() == ["late"])
    assert following.reflector.requests["list"] == 1


def test_a_watch_that_says_nothing_at_all_is_given_up_and_tried_again(server, follow, monkeypatch):
    monkeypatch.setattr(api_client, "SILENCE_SECONDS", 0.3)
    server.faults.silent = True
    following = follow()
    assert eventually(lambda: following.reflector.requests["watch"] >= 2)
    server.faults.silent = False
    server.put(pod("after"))
    assert eventually(lambda: following.names() == ["after"])


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_what_was_known_is_kept_while_the_server_fails(server, follow, status):
    server.put(pod("a"))
    following = follow()
    assert eventually(lambda: following.names() == ["a"])
    server.faults.end_at_once, server.faults.status = True, status
    assert eventually(lambda: following.reflector.errors >= 3)
    assert following.names() == ["a"]
    assert f"answers {status}" in following.reflector.failure
    server.faults.end_at_once, server.faults.status = False, 0
    server.put(pod("b", number=2))
    assert eventually(lambda: following.names() == ["a", "b"])
    assert following.reflector.failure == ""


def test_a_server_in_trouble_is_asked_at_most_three_times_in_ten_seconds(server, follow):
    server.faults.status = 500
    following = follow()
    assert eventually(lambda: following.reflector.errors >= 6)
    pauses = following.pauses[1:6]
    assert sum(pauses[:2]) <= 10 < sum(pauses[:3])
    assert pauses == sorted(pauses)
    assert max(following.pauses) <= 1.5 * MAX_PAUSE_SECONDS


def test_a_server_that_ends_watches_at_once_is_asked_no_more_often(server, follow):
    server.faults.end_at_once = True
    following = follow()
    assert eventually(lambda: following.reflector.errors >= 3)
    failures = [pause for pause in following.pauses[1:] if pause]
    assert failures[0] >= FIRST_PAUSE_SECONDS
    assert failures == sorted(failures)


def test_the_server_says_how_long_to_wait(server, follow):
    server.faults.status, server.faults.retry_after = 429, "17"
    following = follow()
    assert eventually(lambda: following.reflector.errors >= 1)
    assert eventually(lambda: 17.0 in following.pauses)


def test_the_token_is_read_again_for_every_request(server, tmp_path):
    server.faults.token = "second"
    account = ApiServer(server.url, tmp_path)
    (tmp_path / "token").write_text("first\n")
    with pytest.raises(ApiError, match="401: Unauthorized"):
        account.list_pods("n1", print)
    (tmp_path / "token").write_text("second\n")
    assert account.list_pods("n1", print)["kind"] == "PodList"


@pytest.mark.parametrize(
    "body",
    [
        *(b"<html>", b"[]", b"{" * 2000 + b"}", b'{"items": 3}', b"\xff"),
        b'{"items": [' + b"[" * 100_000,
    ],
    ids=range(6),
)
def test_an_answer_that_is_no_list_is_an_error_and_nothing_is_lost(server, tmp_path, body):
    server.faults.garbage = body
    directory = PodDirectory()
    made = Reflector(ApiServer(server.url, tmp_path), directory, "n1", jitter=lambda: 0.0)
    assert made._iteration() >= FIRST_PAUSE_SECONDS
    assert made.failure
    assert not directory.pods()


def test_a_list_without_a_version_is_not_asked_for_again_without_a_pause(server, tmp_path):
    server.faults.garbage = b'{"kind": "PodList", "items": []}'
    made = Reflector(ApiServer(server.url, tmp_path), PodDirectory(), "n1")
    assert made._iteration() >= FIRST_PAUSE_SECONDS


def test_a_server_that_cannot_be_reached_is_an_error(tmp_path):
    gone = FakeApiServer()
    gone.close()
    made = Reflector(ApiServer(gone.url, tmp_path), PodDirectory(), "n1")
    assert made._iteration() >= FIRST_PAUSE_SECONDS
    assert "refused" in made.failure


def test_three_thousand_pods_of_a_busy_server_are_read(server, tmp_path):
    for number in range(3000):
        server.put(pod(f"p{number}", number=number))
    directory = PodDirectory()
    Reflector(ApiServer(server.url, tmp_path), directory, "n1")._iteration()
    assert len(directory.pods()) == 3000
    assert directory.find(uid(2999)).name == "p2999"


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_kubectl_itself_talks_to_the_fake_server(server):
    server.put(pod("train-0", labels={"app": "x"}))
    base = [KUBECTL, f"--server={server.url}"]

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*base, *arguments], capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    listed = json.loads(run("get", "pods", "-A", "-o", "json", "-l", "app=x"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["train-0"]
    assert run("get", "pod", "train-0", "-n", "ml", "-o", "name") == "pod/train-0\n"


@pytest.mark.skipif(not SHARED.is_dir(), reason="recordings of a real API server are not here")
class TestRecordings:
    def read(self, name: str) -> str:
        return (SHARED / name).read_text()

    def test_a_real_list_and_watch_are_followed(self):
        recorded = json.loads(self.read("list_rv0.json"))
        events = [json.loads(x) for x in self.read("watch_add_mod_del_bookmark.jsonl").splitlines()]
        directory = PodDirectory()
        made = Reflector(_Recorded(recorded, events), directory, "n1", jitter=lambda: 0.0)
        made._iteration()
        assert {p.uid for p in directory.pods()} == {
            item["metadata"]["uid"] for item in recorded["items"]
        }
        made._iteration()
        kinds = [event["type"] for event in events]
        assert {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"} <= set(kinds)
        gone = {e["object"]["metadata"]["uid"] for e in events if e["type"] == "DELETED"}
        assert not gone & {p.uid for p in directory.pods()}
        assert made._version == events[-1]["object"]["metadata"]["resourceVersion"]

    def test_a_real_410_in_the_stream_is_understood(self, server, tmp_path):
        event = json.loads(self.read("watch_410_in_stream.jsonl"))
        assert event["object"]["code"] == GONE


class _Recorded:
    """Plays a recorded list and watch."""

    def __init__(self, document, events):
        self._document = document
        self._events = events

    def list_pods(self, node, take):
        for item in self._document["items"]:
            take(item)
        return self._document

    @contextlib.contextmanager
    def watch_pods(self, node, version, seconds):
        yield iter(self._events)


@pytest.mark.parametrize(("seconds", "failures"), [(59.0, 1), (61.0, 0)])
def test_a_watch_that_fell_silent_after_a_minute_is_taken_up_again_without_a_failure(
    monkeypatch, seconds, failures
):
    """Old etcd sends no bookmarks: nothing comes for as long as no pod of the node changes."""
    now = [1000.0]

    class Silent:
        def watch_pods(self, node, version, wanted):
            now[0] += seconds
            raise TimeoutError("timed out")

    monkeypatch.setattr(reflector, "time", SimpleNamespace(monotonic=lambda: now[0]))
    made = Reflector(Silent(), PodDirectory(), "n1")
    made._version = "7"
    pause = made._iteration()
    assert (made.errors, bool(made.failure), pause > 0) == (
        failures,
        bool(failures),
        bool(failures),
    )
    assert made._version == "7"


def test_an_error_without_an_answer_asks_for_no_wait(tmp_path):
    (tmp_path / "token").mkdir()
    with pytest.raises(ApiError, match="token") as raised:
        ApiServer("http://127.0.0.1:1", tmp_path).list_pods("n1", [].append)
    assert (raised.value.code, raised.value.retry_after_seconds) == (0, 0.0)
