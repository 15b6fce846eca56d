"""The last that is still taken and the first that is not, of each limit on NCCL Inspector."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from inspector_files import PROM, line, prom
from rankscope_agent.contract.metrics import nccl_inspector as metrics
from rankscope_agent.sources.nccl_inspector import collector as inspector_collector
from rankscope_agent.sources.nccl_inspector import directories, follower, records, textfile
from rankscope_agent.sources.nccl_inspector.collector import NcclInspectorCollector
from rankscope_agent.sources.nccl_inspector.records import Record
from rankscope_agent.sources.nccl_inspector.speeds import GpuSpeeds
from rankscope_agent.sources.nccl_log import collector as log_collector
from rankscope_agent.sources.nccl_log import streams
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.training.ring_directory import RingDirectory
from standing_clock import Clock
from test_nccl_inspector import ALL_REDUCE, node

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
            status = SimpleNamespace(
                st_mode=0o100644, st_dev=1, st_ino=1, st_nlink=1, st_uid=0, st_mtime_ns=0
            )
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
    entries = [directories.Entry(name.format(index), (1, index), 1, 0, 0) for index in range(65)]
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
