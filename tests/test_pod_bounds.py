"""The last that is still taken and the first that is not, of each limit on what is read of pods."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fake_kubelet import devices, pod_resources
from known_pods import pods_of
from pod_json import pod
from rankscope_agent.sources.pods import api_client, collector, directory, json_items, kubelet
from rankscope_agent.sources.pods import reflector as following
from rankscope_agent.sources.pods.api_client import ApiError, ApiServer
from rankscope_agent.sources.pods.command_line import parse_command
from rankscope_agent.sources.pods.devices import parse_pod_resources
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.gpu_order import read_gpus
from rankscope_agent.sources.pods.json_items import JsonItems
from rankscope_agent.sources.pods.kubelet import KubeletClient, KubeletError
from rankscope_agent.sources.pods.lock_holders import LockHolders
from rankscope_agent.sources.pods.log_directories import LogDirectories, PodIdentity
from rankscope_agent.sources.pods.membership import number
from rankscope_agent.sources.pods.process_scan import ProcessScanner
from rankscope_agent.sources.pods.processes import parse_environ
from rankscope_agent.sources.pods.protobuf import fields
from rankscope_agent.sources.pods.records import parse_pod
from rankscope_agent.sources.pods.reflector import Reflector
from standing_clock import Clock


@pytest.fixture
def clock():
    return Clock()


def test_the_command_line_keeps_256_characters_of_an_argument():
    assert parse_command(b"a" * 300) == ("a" * 256,)


def test_a_value_of_a_process_keeps_256_characters():
    assert parse_environ(b"NCCL_X=" + b"a" * 300) == {"NCCL_X": "a" * 256}


@pytest.mark.parametrize(("text", "value"), [("1048575", 1048575), ("1048576", None)])
def test_a_rank_is_below_2_to_the_20(text, value):
    assert number(text) == value


def test_one_answer_of_the_kubelet_names_65536_devices():
    a_pod = pod_resources("ml", "p", devices("nvidia.com/gpu", *map(str, range(32768))))
    assert len(parse_pod_resources(a_pod * 2)) == 65536
    with_more = pod_resources("ml", "p", devices("nvidia.com/gpu", "0"))
    assert len(parse_pod_resources(with_more + a_pod * 2)) == 65536


def gpu_files(root, count, padding=0):
    folder = root / "driver" / "nvidia" / "gpus"
    for index in range(count):
        (folder / f"0000:{index:02x}:00.0").mkdir(parents=True)
        text = f"GPU UUID: GPU-{index}\nDevice Minor: 1{index}".rjust(padding, "\n")
        (folder / f"0000:{index:02x}:00.0" / "information").write_text(text)
    return root


def test_a_node_has_64_gpus_in_order(tmp_path):
    assert len(read_gpus(gpu_files(tmp_path, 65))) == 64


@pytest.mark.parametrize(("padding", "known"), [(8192, 10), (8193, 1)])
def test_eight_kibibytes_are_read_of_a_gpus_description(tmp_path, padding, known):
    (found,) = read_gpus(gpu_files(tmp_path, 1, padding))
    assert found.minor == known


def test_folders_of_logs_are_looked_at_again_after_five_seconds(tmp_path, clock):
    names = LogDirectories(tmp_path, clock.monotonic)
    assert names.find("u") is None
    (tmp_path / "team_llm-0_u").mkdir()
    clock.now += 4.9
    assert names.find("u") is None
    clock.now += 0.2
    assert names.find("u") == PodIdentity("team", "llm-0", "u")
    (tmp_path / "team_llm_0_v").mkdir()
    clock.now += 6
    assert names.find("0") is None, "no pod's folder has four parts"


def test_4096_folders_of_logs_are_looked_at(tmp_path, clock, monkeypatch):
    scanned = []

    class Folder:
        def __init__(self, name):
            self.name = name
            scanned.append(name)

    class Folders:
        def __enter__(self):
            return (Folder(f"ns_pod_{index}") for index in itertools.count())

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(os, "scandir", lambda root: Folders())
    names = LogDirectories(tmp_path, clock.monotonic)
    assert names.find("4095") is not None
    assert names.find("4096") is None
    assert len(scanned) == 4096


def test_65536_processes_are_looked_at(tmp_path, monkeypatch):
    class Listed:
        def __enter__(self):
            return (SimpleNamespace(name=str(pid), inode=lambda: 1) for pid in range(1, 65538))

        def __exit__(self, *error):
            return None

    scanner = ProcessScanner(tmp_path, lambda placement: {})
    monkeypatch.setattr(os, "scandir", lambda root: Listed())
    assert [pid for pid, _ in scanner._processes()] == list(range(1, 65537))


def process(root, environ, command=b""):
    folder = root / "7"
    folder.mkdir(parents=True)
    (folder / "environ").write_bytes(environ)
    (folder / "cgroup").write_text("0::/user.slice\n")
    (folder / "cmdline").write_bytes(command)
    return ProcessScanner(root, lambda placement: {}).scan().ranks


RANK = b"RANK=1\0WORLD_SIZE=2\0LOCAL_RANK=1\0"


@pytest.mark.parametrize(("size", "world"), [(1 << 18, 24), ((1 << 18) + 1, 2)])
def test_256_kibibytes_are_read_of_an_environment(tmp_path, size, world):
    environ = b"\0RANK=1\0LOCAL_RANK=1\0WORLD_SIZE=24"
    (found,) = process(tmp_path, b"X=" + environ.rjust(size - 2, b"a"))
    assert found.identity.world_size == world


def test_16_kibibytes_are_read_of_a_command_line(tmp_path):
    arguments = b"\0".join([b"a" * 127] * 200)
    (found,) = process(tmp_path, RANK, arguments)
    assert len(found.command) == (16 << 10) // 128


def test_what_is_kept_of_a_pod_has_bounds():
    labels = {f"l{index:03d}": "x" for index in range(130)}
    long_text = {"example.com/rank": "y" * 5000}
    data = pod(
        labels=labels,
        annotations=long_text,
        env={"NCCL_A": "z" * 5000},
        limits={f"example.com/r{index}": "1" for index in range(20)},
    )
    data["spec"]["containers"][0]["image"] = "i" * 600
    data["spec"]["containers"] += [{"name": f"c{index}"} for index in range(70)]
    found = parse_pod(data)
    assert len(found.labels) == 128
    assert len(found.containers) == 64
    main = found.containers[0]
    assert len(main.environment["NCCL_A"]) == 4096
    assert len(main.image) == 512
    assert len(main.limits) == 16


def test_32_kibibytes_are_kept_of_a_pods_texts():
    notes = {f"a{index:02d}/rank": "x" * 4096 for index in range(10)}
    kept = parse_pod(pod(annotations=notes)).annotations
    assert len(kept) == (32 << 10) // (4096 + len("a00/rank"))


def pods(count):
    return [parse_pod(pod(f"p{index}", number=index)) for index in range(count)]


def test_the_directory_holds_20000_pods(monkeypatch):
    one, *_ = pods(1)
    member = directory.membership(one)
    monkeypatch.setattr(directory, "membership", lambda pod: member)
    many = [replace(one, uid=str(index)) for index in range(20_001)]
    known = PodDirectory()
    known.replace(many[:20_000], 0.0)
    assert known.dropped == 0
    known.put(one, 1.0)
    assert known.dropped == 1
    known.replace(many, 2.0)
    assert known.dropped == 1
    assert len(known._pods) == 20_000


def test_a_pod_is_awaited_for_a_minute_of_the_first_list_and_of_its_own(monkeypatch, clock):
    monkeypatch.setattr(directory, "time", clock)
    known = PodDirectory()
    known.expect()
    clock.now += 59.9
    assert known.pending
    clock.now += 0.2
    assert not known.pending
    known.replace([], clock.now)
    assert known._awaits("u")
    clock.now += 59.9
    assert known._awaits("u")
    clock.now += 0.2
    assert not known._awaits("u")


def test_1024_pods_are_awaited_at_once(monkeypatch, clock):
    monkeypatch.setattr(directory, "time", clock)
    known = pods_of()
    known.expect()
    known.replace([], clock.now)
    for index in range(1024):
        assert known._awaits(str(index))
    clock.now += 61
    assert not known._awaits("0")
    assert known._awaits("one more")
    assert known._awaits("0"), "all are forgotten together"


class Events:
    """A watch in which nothing happens."""

    def __enter__(self):
        return iter(())

    def __exit__(self, *error):
        return None


class Server:
    """An API server whose answers a test gives."""

    def __init__(self, clock):
        self.clock, self.lasts, self.error, self.seconds = clock, 0.0, None, []
        self.listed = 0

    def list_pods(self, node, take):
        for index in range(self.listed):
            take(pod(f"p{index}", number=index))
        return {"metadata": {"resourceVersion": "1"}}

    def watch_pods(self, node, version, seconds):
        self.seconds.append(seconds)
        self.clock.now += self.lasts
        if self.error:
            raise self.error
        return Events()


@pytest.fixture
def followed(monkeypatch, clock):
    monkeypatch.setattr(following, "time", clock)
    server = Server(clock)
    made = Reflector(server, PodDirectory(), "n1", clock=clock.time, jitter=lambda: 0.0)
    return SimpleNamespace(server=server, reflector=made)


def test_a_watch_shorter_than_five_seconds_is_a_failure(followed):
    followed.reflector._iteration()
    followed.server.lasts = 4.9
    assert followed.reflector._iteration() == 2.0
    followed.server.lasts = 5.1
    assert followed.reflector._iteration() == 0.0


def test_failures_count_in_a_row_until_a_watch_has_lasted_two_minutes(followed):
    followed.reflector._iteration()
    pauses = []
    for lasts in (1.0, 1.0, 119.0, 1.0, 121.0, 1.0):
        followed.server.lasts = lasts
        pauses.append(followed.reflector._iteration())
    assert pauses == [2.0, 4.0, 0.0, 8.0, 0.0, 2.0]
    followed.server.error = OSError("gone")
    pauses = []
    for lasts in (1.0, 119.0, 121.0):
        followed.server.lasts = lasts
        pauses.append(followed.reflector._iteration())
    assert pauses == [4.0, 8.0, 2.0]


@pytest.mark.parametrize(("lasts", "pause"), [(59.0, 2.0), (61.0, 0.0)])
def test_a_watch_that_was_silent_for_a_minute_is_simply_begun_again(followed, lasts, pause):
    followed.reflector._iteration()
    followed.server.lasts, followed.server.error = lasts, TimeoutError()
    assert followed.reflector._iteration() == pause


def test_watches_are_asked_for_four_to_eight_minutes(followed):
    followed.reflector._iteration()
    for jitter in (0.0, 1.0):
        followed.reflector._jitter = lambda jitter=jitter: jitter
        followed.server.lasts = 10.0
        followed.reflector._iteration()
    assert followed.server.seconds == [240, 480]


@pytest.mark.parametrize(("listed", "warned"), [(4095, False), (4097, True)])
def test_4096_pods_of_a_node_are_known(followed, monkeypatch, caplog, listed, warned):
    one = parse_pod(pod())
    monkeypatch.setattr(following, "_pod", lambda item: one)
    taken = []
    monkeypatch.setattr(followed.reflector._directory, "replace", lambda *of: taken.extend(of[0]))
    monkeypatch.setattr(
        followed.server,
        "list_pods",
        lambda node, take: (
            [take(one) for _ in range(listed)] and {"metadata": {"resourceVersion": "1"}}
        ),
    )
    followed.reflector._iteration()
    assert len(taken) == min(listed, 4096)
    assert ("only the first 4096" in caplog.text) is warned


class Silent:
    """A connection that answers nothing, and knows how long it would be waited for."""

    def __init__(self):
        self.waits = []
        self.sock = SimpleNamespace(settimeout=self.waits.append)

    def request(self, *asked, **headers):
        pass

    def getresponse(self):
        raise TimeoutError

    def close(self):
        pass


def test_a_list_is_waited_for_a_minute_and_events_for_100_seconds(tmp_path, monkeypatch):
    connection = Silent()
    server = ApiServer("http://127.0.0.1:1", tmp_path)
    monkeypatch.setattr(server.__class__, "_connect", lambda self: connection)
    with pytest.raises(TimeoutError):
        server.list_pods("n1", print)
    with pytest.raises(TimeoutError), server.watch_pods("n1", "1", 240):
        pass
    assert connection.waits == [60.0, 100.0]


def test_connecting_takes_ten_seconds_at_most(tmp_path):
    for scheme in ("http", "https"):
        assert ApiServer(f"{scheme}://127.0.0.1:1", tmp_path)._connect().timeout == 10.0


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
def test_a_list_of_pods_has_256_mebibytes_at_most(more, taken):
    sizes = iter([(256 << 20), more])
    read = api_client._bounded(SimpleNamespace(read1=lambda size: range(next(sizes))))
    read(1)
    if taken:
        assert len(read(1)) == 0
        return
    with pytest.raises(ApiError, match="larger than 256 MiB"):
        read(1)


def test_64_kibibytes_are_read_of_a_token(tmp_path):
    (tmp_path / "token").write_text("a" * 70_000)
    given = ApiServer("http://127.0.0.1:1", tmp_path)._headers()["Authorization"]
    assert given == "Bearer " + "a" * 65_536


def test_a_value_has_16_mebi_characters_at_most():
    def reader(longest):
        items = JsonItems.__new__(JsonItems)
        items._ended, items._text, items._at = False, "x" * longest, 0
        items._read = lambda size: b""
        items._decoder = json_items.codecs.getincrementaldecoder("utf-8")()
        return items

    assert reader(16 << 20)._more()
    with pytest.raises(ValueError, match="longer than 16 Mi characters"):
        reader((16 << 20) + 1)._more()


def test_a_list_is_read_in_pieces_of_64_kibibytes_and_of_what_is_held_if_that_is_more():
    text = json.dumps({"items": ["x" * 300_000]}).encode()
    asked, left = [], memoryview(text)

    def read(size):
        nonlocal left
        asked.append(size)
        piece, left = left[:size], left[size:]
        return bytes(piece)

    assert len(list(JsonItems(read))) == 1
    assert asked[0] == 65536
    assert asked[1:] == sorted(asked[1:])
    assert len(asked) < 8


def test_an_answer_of_the_kubelet_has_16_mebibytes_at_most():
    answer = kubelet._Answer()
    answer._body = bytearray(16 << 20)
    answer.take(SimpleNamespace(receive_data=lambda data: ()), b"")
    answer._body.append(0)
    with pytest.raises(KubeletError, match="larger than 16 MiB"):
        answer.take(SimpleNamespace(receive_data=lambda data: ()), b"")


def test_the_kubelet_is_waited_for_five_seconds(tmp_path, monkeypatch, clock):
    waits = []
    monkeypatch.setattr(kubelet, "time", clock)

    class Connection:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        settimeout = staticmethod(waits.append)

        def connect(self, path):
            raise FileNotFoundError

    monkeypatch.setattr(kubelet.socket, "socket", lambda *kind: Connection())
    with pytest.raises(FileNotFoundError):
        KubeletClient(tmp_path / "kubelet.sock").call()
    assert waits == [5.0]


def test_fixed_fields_are_four_and_eight_bytes_long():
    message = bytes([1 << 3 | 5, *b"four", 2 << 3 | 1, *b"of eight", 3 << 3 | 0, 7])
    found = [
        (key, value if isinstance(value, int) else bytes(value))
        for key, value in fields(memoryview(message))
    ]
    assert found == [(1, b"four"), (2, b"of eight"), (3, 7)]


def test_once_waits_five_seconds_for_the_first_list(tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(PodDirectory, "wait", lambda self, seconds: waits.append(seconds))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    config = SimpleNamespace(
        once=True,
        procfs=tmp_path,
        sysfs=tmp_path,
        kubelet=tmp_path,
        kubernetes_api="",
        node_name="n1",
        job_labels=(),
    )
    collector.create(config, PodDirectory())
    assert waits == [5.0]


def test_locks_are_looked_at_every_five_seconds(tmp_path, clock):
    locks = tmp_path / "locks"
    locks.write_text("1: FLOCK  ADVISORY  WRITE 7 00:1b:263050 0 EOF\n")
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Uid:\t1000\t1000\t1000\t1000\n")
    holders = LockHolders(tmp_path, clock)
    ring = os.makedev(0, 27), 263050
    for later, known in ((0.0, True), (4.9, True), (0.1, False)):
        clock.now += later
        assert (holders.of(ring) is not None) is known
        locks.write_text("")


def test_64_names_that_are_not_believed_are_logged(monkeypatch, caplog):
    refused = [(f"pod {number}", "not its own") for number in range(65)]
    monkeypatch.setattr(collector, "refused_names", lambda view, known: refused)
    made = collector.PodsCollector.__new__(collector.PodsCollector)
    made._directory, made._logged_refusals = None, frozenset()
    made._log_refusals(None)
    assert len(caplog.messages) == 64
