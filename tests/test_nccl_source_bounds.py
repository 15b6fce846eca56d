"""The last that is still taken and the first that is not, of each limit on what NCCL writes."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from inspector_files import PROM, line, prom
from nccl_job_text import comm, edge, info, start
from rankscope_agent.contract.metrics import nccl_inspector as metrics
from rankscope_agent.contract.metrics import nccl_log
from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.sources.nccl_inspector import collector as inspector_collector
from rankscope_agent.sources.nccl_inspector import directories, follower, records, textfile
from rankscope_agent.sources.nccl_inspector.collector import NcclInspectorCollector
from rankscope_agent.sources.nccl_inspector.records import Record
from rankscope_agent.sources.nccl_inspector.speeds import GpuSpeeds
from rankscope_agent.sources.nccl_log import collector as log_collector
from rankscope_agent.sources.nccl_log import memory, pod, series, streams
from rankscope_agent.sources.nccl_log.collector import NcclLogCollector
from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.nccl_log.pod import PodLogs
from rankscope_agent.sources.nccl_log.step_lines import collectives
from rankscope_agent.sources.nccl_log.step_lines.collectives import CollectivePeriod, repeat
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_lines.prefix import words_begin
from rankscope_agent.sources.nccl_log.step_lines.trainers import TrainerLines
from rankscope_agent.sources.nccl_log.step_lines.values import NCCL, rate
from rankscope_agent.sources.nccl_ras import client
from rankscope_agent.sources.nccl_ras import collector as ras
from rankscope_agent.sources.nccl_ras.client import RasError
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.log_directories import PodIdentity
from rankscope_agent.sources.training.ring_directory import RingDirectory
from standing_clock import Clock
from test_collective_period import coll
from test_nccl_inspector import ALL_REDUCE, node
from test_nccl_log_collector import Node as LogNode

__all__ = ["node"]


def record(**changed):
    return records.parse(line(**changed).encode())


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("coll_exec_time_us", 86_400_000_000),
        ("coll_exec_time_us", 86_400_000_000.0),
        ("coll_msg_size_bytes", 1 << 48),
    ],
)
def test_an_operation_has_limits_of_time_and_size(name, most):
    assert isinstance(record(**{name: most}), Record)
    assert record(**{name: most + 1}) is None


def test_ranks_of_an_operation_are_at_most_2_to_the_20():
    assert isinstance(record(rank=7, nranks=1 << 20), Record)
    assert record(rank=7, nranks=(1 << 20) + 1) is None


def test_speeds_of_100_terabytes_a_second_and_times_of_a_day_are_believed():
    for value, count in ((100_000, 1), (100_001, 0)):
        assert len(textfile.parse(prom("nccl_bus_bandwidth_gbs", value))) == count
    for value, count in ((86_400_000_000, 1), (86_400_000_001, 0)):
        assert len(textfile.parse(prom("nccl_collective_exec_time_microseconds", value))) == count


def test_20000_lines_of_a_file_of_speeds_are_read():
    speed = prom("nccl_bus_bandwidth_gbs", 3)
    for before, count in ((19_999, 1), (20_000, 0)):
        assert len(textfile.parse("#\n" * before + speed)) == count


@pytest.mark.parametrize(
    ("text", "size"),
    [("3B", 3), ("3KB", 3 << 10), ("3MB", 3 << 20), ("3GB", 3 << 30), ("3TB", 3 << 40)],
)
def test_sizes_of_messages_have_binary_units(text, size):
    (speed,) = textfile.parse(prom("nccl_bus_bandwidth_gbs", 3, message_size=text))
    assert speed.size == size


def test_inspector_may_take_a_fiftieth_of_a_core_and_logs_a_twentieth(tmp_path):
    config = SimpleNamespace(
        kubelet=tmp_path,
        inspector_dirs=(),
        interval_seconds=10.0,
        pod_logs=tmp_path,
        nccl_logs=(),
        step_pattern=None,
        sysfs=tmp_path,
        state_dir=tmp_path,
    )
    pods = SimpleNamespace(gpus_of=None, namespace_of_pod=None)
    assert inspector_collector.create(config, pods)._follower._budget == pytest.approx(0.2)
    assert log_collector.create(config, PodDirectory())._follower._budget == pytest.approx(0.5)


def test_inspectors_files_are_looked_for_every_five_seconds(node):
    clock = Clock(node.root.stat().st_mtime)
    asking = NcclInspectorCollector(node.follower, clock)

    def files():
        return next(s.value for s in asking.collect() if s.metric is metrics.INSPECTOR_FILES)

    assert files() == 0
    node.log.write_text(line())
    clock.now += 4.9
    assert files() == 0
    clock.now += 0.2
    assert files() == 1


@pytest.mark.parametrize(("cpu", "looked_at"), [(0.099, 2), (0.101, 1)])
def test_looking_for_inspectors_files_takes_a_tenth_of_a_cpu_second(
    node, monkeypatch, cpu, looked_at
):
    made = node.follower

    def look(place, known):
        node.cpu += cpu
        return follower._Listing((0, 0, 0), [], [], 0)

    places = [RingDirectory(node.root, (str(index),), str(index)) for index in range(3)]
    monkeypatch.setattr(follower, "directories", lambda *where: places)
    monkeypatch.setattr(made, "_look", look)
    made.rescan(0.0)
    assert len(made._listings) == looked_at


@pytest.mark.parametrize(("lag", "skipped"), [(4 << 20, 0), ((4 << 20) + 1, (4 << 20) + 1 - 65536)])
def test_inspectors_file_may_be_four_mebibytes_behind(node, lag, skipped):
    log = SimpleNamespace(offset=0, pending=b"")
    node.follower._keep_up(log, lag)
    assert node.follower.skipped_bytes == skipped == log.offset


@pytest.mark.parametrize(("length", "counted"), [(65536, 1), (65537, 0)])
def test_64_kibibytes_are_kept_of_a_line_of_inspector(node, length, counted):
    whole = line()
    padded = whole[:-2] + " " * (length - len(whole) + 1) + "}\n"
    node.log.write_text(padded[:length])
    for _ in range(3):
        node.page()
    with node.log.open("a") as sink:
        sink.write("\n")
    assert node.page().get((metrics.INSPECTOR_OPERATIONS, ALL_REDUCE), 0) == counted


@pytest.mark.parametrize(("before", "kept"), [(4095, True), (4096, False)])
def test_counts_of_4096_ended_ranks_are_kept(node, before, kept):
    node.log.write_text(line())
    node.page()
    node.log.unlink()
    node.follower._ended = {Other(number): {} for number in range(before)}
    node.follower.rescan(0.0)
    assert len(node.follower._ended) == before + kept


@dataclass(frozen=True)
class Other:
    """A rank of no pod that has ended."""

    number: int
    pod_uid: str = ""


@pytest.fixture
def endless(monkeypatch):
    class Folder:
        def __enter__(self):
            status = SimpleNamespace(st_mode=0o100644, st_dev=1, st_ino=1, st_nlink=1, st_uid=0)
            return (
                SimpleNamespace(name=f"{index:06d}", stat=lambda follow_symlinks: status)
                for index in range(5000)
            )

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(os, "scandir", lambda folder: Folder())


def test_4096_names_of_a_folder_are_looked_at(tmp_path, endless):
    assert len(directories.list_files(0)) == 4096
    assert len(directories._names(tmp_path)) == 4096
    assert len(streams._names(tmp_path)) == 4096


def test_256_pods_folders_are_looked_at(tmp_path, monkeypatch):
    volume = SimpleNamespace(root=tmp_path, parts=("a",), pod_uid="u")
    monkeypatch.setattr(directories, "pod_directories", lambda kubelet: [volume] * 300)
    assert len(list(directories.directories(tmp_path, ()))) == 256


def test_64_gpus_have_files_of_speeds(tmp_path):
    name = "nccl_inspector_metrics_{:08x}-0000-0000-0000-000000000000.prom"
    entries = [directories.Entry(name.format(index), (1, index), 1, 0) for index in range(65)]
    speeds = GpuSpeeds(lambda uid: None)
    speeds.take({RingDirectory(tmp_path, (), ""): entries})
    assert (len(speeds._files), speeds.refused) == (64, 1)


@pytest.mark.parametrize(("age", "known"), [(599.0, 1), (601.0, 0)])
def test_speeds_are_told_for_ten_minutes(node, age, known):
    path = node.pod / PROM
    path.write_text(prom("nccl_bus_bandwidth_gbs", 3))
    node.follower.rescan(0.0)
    node.follower.read(path.stat().st_mtime + age)
    assert node.follower._speeds.files == known


@pytest.mark.parametrize(("before", "known"), [((4 << 20) - 1000, 1), (4 << 20, 0)])
def test_four_mebibytes_are_read_of_a_file_of_speeds(node, before, known):
    path = node.pod / PROM
    path.write_text("#" * before + "\n" + prom("nccl_bus_bandwidth_gbs", 3))
    node.follower.rescan(0.0)
    node.follower.read(path.stat().st_mtime)
    assert node.follower._speeds.files == known


# RAS


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


# logs


def test_logs_are_looked_for_every_five_seconds_and_counts_are_saved_every_thirty(tmp_path):
    made = LogNode(tmp_path)
    clock = Clock()
    follower_made = NcclFollower(
        tmp_path / "pods", (), made.cpu, budget_seconds=1.0, timer=lambda: 0.0
    )
    state = tmp_path / "nccl_logs.json"
    asking = NcclLogCollector(follower_made, tmp_path / "sys", state, clock, PodDirectory())
    made.write(start(7, 16, "NET/Socket/0", network="Socket"))

    def logs():
        return next(s.value for s in asking.collect() if s.metric is nccl_log.NCCL_LOGS)

    assert logs() == 1
    first = state.read_bytes()
    other = tmp_path / "pods" / "team_train-1_uid-2" / "main"
    other.mkdir(parents=True)
    (other / "0.log").write_text("x\n")
    clock.now += 4.9
    assert logs() == 1
    clock.now += 0.2
    assert logs() == 2
    clock.now += 24.8
    logs()
    assert state.read_bytes() == first
    clock.now += 0.2
    logs()
    assert state.read_bytes() != first


def test_64_mebibytes_are_read_of_saved_counts(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        log_collector.untrusted_json, "read", lambda text: asked.append(len(text)) or {}
    )
    (tmp_path / "nccl_logs.json").touch()
    os.truncate(tmp_path / "nccl_logs.json", (64 << 20) + 9)
    LogNode(tmp_path)
    assert asked == [(64 << 20) + 1]


def test_64_pods_are_remembered(tmp_path):
    follower_made = NcclFollower(tmp_path, (), lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0)
    for index in range(64):
        assert len(follower_made._jobs) == index
        owner = PodIdentity(f"n{index}", "p", "u")
        job = follower_made._job(owner)
        assert job is not None
        job.facts.warnings["x"] = None  # it has spoken
    assert follower_made._job(PodIdentity("one-more", "p", "u")) is None


def test_pods_together_take_16_mebibytes(tmp_path):
    made = NcclFollower(tmp_path, (), lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0)
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    made._jobs[one.owner] = one
    one.weight = 16 << 20
    made._bound()
    assert not one.full
    one.weight += 1
    made._bound()
    assert one.full


@pytest.mark.parametrize(("weight", "full"), [(4 << 20, False), ((4 << 20) + 1, True)])
def test_one_pod_takes_four_mebibytes(monkeypatch, weight, full):
    monkeypatch.setattr(pod, "estimated_bytes", lambda facts, threads: weight)
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    one.sum_up()
    assert one.full is full


def test_the_log_of_an_ended_container_is_read_64_times(tmp_path, monkeypatch):
    made = NcclFollower(tmp_path, (), lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0)
    stream = SimpleNamespace(
        left=lambda: 0,
        close=lambda: None,
        location=SimpleNamespace(owner=PodIdentity("", "", "")),
    )
    made._followed[tmp_path] = SimpleNamespace(stream=stream, has_content=False)
    reads = []
    monkeypatch.setattr(made, "_read_one", lambda followed, now: reads.append(now) or True)
    monkeypatch.setattr(made, "_end", lambda path: None)
    made._take_leave(tmp_path, 0.0)
    assert len(reads) == 64


@pytest.mark.parametrize(("length", "cut"), [(65535, 0), (65536, 1)])
def test_64_kibibytes_are_kept_of_a_line_without_an_end(tmp_path, length, cut):
    made = LogNode(tmp_path)
    made.log.write_text("x" * length)
    for _ in range(3):
        made.page()
    (followed,) = made.collector._follower._followed.values()
    assert followed.framing.oversized == cut


def facts(**given):
    dog = SimpleNamespace(timeouts=(), states=(), culprits=(), ranks=())
    empty = {
        "all_members": lambda: (),
        "members": (),
        "past_members": (),
        "loose_edges": {},
        "watchdog": dog,
        "processes": (),
        "settings": 0,
        "warnings": (),
        "ib_errors": (),
        "comm_ranks": (),
        "tagged_ranks": (),
    }
    return SimpleNamespace(**(empty | given))


EDGES = SimpleNamespace(pairs={"NET/IB": (1, 2)})
DOG = SimpleNamespace(timeouts=(1,), states=(1, 2), culprits=(1,), ranks=(1, 2, 3))


@pytest.mark.parametrize(
    ("found", "threads", "expected"),
    [
        (facts(), 10, 12_000),
        (facts(processes=(1,) * 10), 0, 12_000),
        (facts(settings=10), 0, 4_000),
        (facts(all_members=lambda: [SimpleNamespace(edges=EDGES)]), 0, 3 * 120),
        (facts(members=(1, 2), past_members=(3,)), 0, 3 * 1_800),
        (facts(loose_edges={0: [EDGES, EDGES]}), 0, 6 * 120),
        (facts(watchdog=DOG), 0, 4 * 400 + 3 * 64),
        (facts(warnings=(1, 2), ib_errors=(1,)), 0, 3_000),
        (facts(comm_ranks=(1, 2), tagged_ranks=(3,)), 0, 3 * 64),
    ],
)
def test_what_facts_weigh(found, threads, expected):
    assert memory.estimated_bytes(found, threads) == expected


def test_a_verdict_stands_for_five_seconds(monkeypatch):
    judged = []
    monkeypatch.setattr(pod, "judge", lambda facts: judged.append(1) or len(judged))
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    for now, verdict in ((100.0, 1), (104.9, 1), (105.1, 2)):
        one._grew = True
        assert one.verdict(now) == verdict


@pytest.mark.parametrize(
    ("version", "known"), [(3, False), (4, True), (8, True), (12, True), (13, False)]
)
def test_versions_4_to_12_of_the_external_plugin_are_known(version, known):
    name = f"IBext_v{version}"
    assert series._bounded(name, series.NETWORKS) == (name if known else "other")


# lines about steps


def test_8192_collectives_and_4096_shapes_are_remembered():
    period = CollectivePeriod()

    def feed(comm, count):
        text = coll("AllReduce", count, 1, comm=f"0x{comm:x}").encode()
        assert period.feed(text, text.index(collectives.MARK), None)

    for number in range(8200):
        feed(1, number % 4096)
    assert (len(period._order), len(period._shapes)) == (8192, 4096)
    feed(1, 5000)
    assert len(period._shapes) == 1


@pytest.mark.parametrize(("others", "followed"), [(4095, 1), (4096, 2)])
def test_a_process_has_ended_after_4096_collectives_of_others(others, followed):
    period = CollectivePeriod()
    for pid, count in ((1, 1), (2, others)):
        text = coll("AllReduce", 7, 1, pid=pid).encode()
        for _ in range(count):
            period.feed(text, text.index(collectives.MARK), None)
    assert period._process.endswith(b":%d" % followed)


def stamped_period(records_, seconds, *, stamped=True):
    """Return the period of so many collectives, four a step, over some seconds."""
    period = CollectivePeriod()
    for number in range(records_):
        at = seconds * number / (records_ - 1)
        minutes, rest = divmod(at, 60)
        stamp = f"2026-11-21T02:{int(minutes):02d}:{rest:09.6f}000Z stdout F " if stamped else ""
        text = (stamp + coll("AllReduce", number % 4, 1)).encode()
        period.feed(text, text.index(collectives.MARK), 1000.0 + at)
    return period.step_seconds()


@pytest.mark.parametrize(
    ("records_", "seconds", "stamped", "known"),
    [
        (1024, 20.0, True, True),
        (1023, 20.0, True, False),
        (200, 60.1, True, True),
        (200, 59.9, True, False),
        (1024, 30.1, False, True),
        (1024, 29.9, False, False),
    ],
)
def test_a_period_is_believed_after_many_collectives_or_a_minute(records_, seconds, stamped, known):
    assert (stamped_period(records_, seconds, stamped=stamped) is not None) is known


@pytest.mark.parametrize(("kinds", "looked_at"), [(64, 64), (70, 64)])
def test_64_distances_are_looked_at(kinds, looked_at):
    order = [
        place
        for distance in range(1, kinds + 1)
        for place in itertools.chain.from_iterable(
            [distance, *([1000] * (distance - 1))] for _ in range(4)
        )
    ]
    assert len(collectives._commonest_distances(order)) == looked_at


@pytest.mark.parametrize(("repeats", "period"), [(4, 3), (3, None)])
def test_a_period_repeats_itself_four_times(repeats, period):
    assert repeat([0, 1, 2] * repeats) == period


TOOK = "elapsed time per iteration (ms)"
MEGATRON = " iteration {step}/ {total} | " + TOOK + ": {took} |{more} learning rate: 1 |"


def megatron_step(step=5, total=10, took="512.0", before="", more=""):
    line_ = before + MEGATRON.format(step=step, total=total, took=took, more=more)
    log = StepLog()
    log.feed((line_ + "\n").encode(), 1.0, None)
    return log.facts.frameworks.get("megatron")


@pytest.mark.parametrize(
    ("of_line", "known"),
    [
        ({"step": 10**12, "total": 10**12}, True),
        ({"step": 10**12 + 1, "total": 10**13}, False),
        ({"took": "86400000"}, True),
        ({"took": "86400001"}, False),
        ({"more": " a: 1 |" * 62}, True),
        ({"more": " a: 1 |" * 63}, False),
        ({"more": "x" * 8000 + ": 1 |"}, True),
        ({"more": "x" * 8192 + ": 1 |"}, False),
    ],
)
def test_lines_about_steps_have_limits(of_line, known):
    assert (megatron_step(**of_line) is not None) is known


@pytest.mark.parametrize(("value", "known"), [(1e12, 1e12), (1.1e12, None)])
def test_rates_are_at_most_a_trillion(value, known):
    assert rate(value) == known


@pytest.mark.parametrize(("length", "begins"), [(510, True), (511, False)])
def test_prefixes_of_a_line_are_looked_for_in_512_bytes(length, begins):
    tags = [b"[" + b"a" * 198 + b"]", b"[" + b"a" * 198 + b"]"]
    tags += [b"[" + b"a" * (length - 400) + b"]"]
    assert (words_begin(b"".join(tags) + b"x") == length + 2) is begins


@pytest.mark.parametrize(("length", "known"), [(4096, True), (4097, False)])
def test_what_the_trainer_logs_has_4096_bytes_at_most(length, known):
    items = b"".join(b", '%s': 1" % (b"x" * 50) for _ in range(70))
    words = b"{'loss': 1.25, 'learning_rate': 1e-05, 'epoch': 0.5" + items
    words += b", '%s': 1}" % (b"y" * (length - len(words) - 8))
    assert len(words) == length
    assert (TrainerLines().read_dictionary(words) is not None) is known


def test_votes_of_16_bars_are_counted():
    seen = TrainerLines()
    words = b"{'loss': 1.25, 'learning_rate': 1e-05, 'epoch': 0.5}"
    for total in range(1, 20):
        seen._open_total = total
        seen.read_dictionary(words)
    assert len(seen.votes) == 16


def test_periods_are_worked_out_every_five_seconds():
    log = StepLog()
    found = []
    for now in (100.0, 104.9, 105.1):
        log.feed(coll("AllReduce", 7, 1).encode(), now, None)
        log.sum_up(now)
        found.append(log.facts.frameworks[NCCL].lines)
    assert found == [1, 1, 3]


def fed(lines_):
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    one.feed("".join(lines_).encode(), 1.0, fresh=True)
    one.sum_up()
    return one


def test_4096_ranks_of_a_pod_are_remembered():
    one = fed(info(rank, comm(rank, 4200, "START")) for rank in range(4200))
    assert len(one.facts.members) == 4096


@pytest.mark.parametrize(("known", "kept"), [(4095, True), (4096, False)])
def test_4096_ranks_with_timeouts_of_a_pod_are_remembered(known, kept):
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    one.facts.watchdog.ranks |= set(range(1, known + 1))
    one.facts.watchdog.read(b"[rank5000]: nothing else")
    assert (5000 in one.facts.watchdog.ranks) is kept


@pytest.mark.parametrize(("edges", "left"), [(3999, 4000), (4000, 0)])
def test_4000_connections_of_a_pod_wait_to_be_summed_up(edges, left):
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    one._parser._new_edges = edges
    one.feed(info(0, edge(0, 1, "P2P/IPC")).encode(), 1.0, fresh=True)
    assert one._parser._new_edges == left


def test_4096_threads_and_8192_settings_of_a_pod_are_remembered():
    said = "gpu-00:{0}:{0} [0] NCCL INFO Using network IB\n"
    one = fed(said.format(number) for number in range(1, 4200))
    assert one._parser.threads == 4096 + 1, "and one that stands for all others"
    sets = "gpu-00:{0}:{0} [0] NCCL INFO NCCL_X{1} set by environment to 1\n"
    one = fed(sets.format(1 + number // 60, number % 60) for number in range(8400))
    assert one.facts.settings == 8192
