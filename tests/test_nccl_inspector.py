"""NCCL Inspector's files: what is exported of them, and what hostile or broken ones do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from inspector_files import PROM, UUID, header, line, prom, send
from rankscope_agent.contract.metrics import nccl_inspector as metrics
from rankscope_agent.contract.model import Metric
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.nccl_inspector import follower as follower_module
from rankscope_agent.sources.nccl_inspector import records, textfile
from rankscope_agent.sources.nccl_inspector.collector import NcclInspectorCollector, create
from rankscope_agent.sources.nccl_inspector.directories import list_files, open_file
from rankscope_agent.sources.nccl_inspector.follower import InspectorFollower
from rankscope_agent.sources.pods.directory import PodDirectory

READ_BYTES = 64 << 10
MAX_LAG = 4 << 20


class Clock:
    """Unix time that passes fast enough to look for files in each run."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 10
        return self.now


class Node:
    """A node's directories and the collector on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        volume = root / "kubelet" / "pods" / "uid-1" / "volumes" / "kubernetes.io~empty-dir"
        self.pod = volume / "rankscope" / "nccl-inspector"
        self.pod.mkdir(parents=True)
        self.log = self.pod / "gpu-00-pid4711.log"
        self.cpu = self.now = 0.0
        patterns = (root / "logs" / "nccl-inspector-*",)
        self.held = {"uid-1": {f"GPU-{UUID}"}}
        self.follower = InspectorFollower(
            root / "kubelet",
            patterns,
            lambda: self.cpu,
            1.0,
            lambda uid: self.held.get(uid),
            timer=lambda: self.now,
        )
        self.collector = NcclInspectorCollector(self.follower, Clock(root.stat().st_mtime))

    def page(self) -> dict[tuple[Metric, tuple[str, ...]], object]:
        samples = list(self.collector.collect())
        series = {(sample.metric, sample.labels): sample.value for sample in samples}
        assert len(series) == len(samples), "a series came twice"
        return series


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.follower.close()


ALL_REDUCE = ("uid-1", "3", "AllReduce", "kernel")


def test_operations_of_a_rank_are_counted(node):
    node.log.write_text(line() + line(coll_exec_time_us=1_000_000, coll_msg_size_bytes=16))
    page = node.page()
    assert page[metrics.INSPECTOR_OPERATIONS, ALL_REDUCE] == 2
    assert page[metrics.INSPECTOR_SECONDS, ALL_REDUCE] == pytest.approx(1.061974)
    assert page[metrics.INSPECTOR_BYTES, ALL_REDUCE] == 17179869184 + 16
    assert page[metrics.INSPECTOR_FILES, ()] == 1


def test_a_process_alone_is_a_rank_as_well(node):
    node.log.write_text(line(rank=0, nranks=1))
    alone = ("uid-1", "0", "AllReduce", "kernel")
    assert node.page()[metrics.INSPECTOR_OPERATIONS, alone] == 1


def test_a_file_is_read_on_as_it_grows_and_a_cut_line_waits_for_its_end(node):
    whole = line()
    node.log.write_text(whole + whole[:100])
    assert node.page()[metrics.INSPECTOR_OPERATIONS, ALL_REDUCE] == 1
    with node.log.open("a") as sink:
        sink.write(whole[100:])
    page = node.page()
    assert page[metrics.INSPECTOR_OPERATIONS, ALL_REDUCE] == 2
    assert page[metrics.INSPECTOR_UNPARSED, ()] == 0


def test_a_file_that_is_emptied_is_read_anew(node):
    node.log.write_text(line() * 3)
    node.page()
    node.log.write_text(line())
    assert node.page()[metrics.INSPECTOR_OPERATIONS, ALL_REDUCE] == 4


def test_a_rank_is_that_of_the_largest_communicator(node):
    node.log.write_text(line(rank=1, nranks=8) + line(rank=11, nranks=64) + send(0, 2))
    page = node.page()
    assert page[metrics.INSPECTOR_OPERATIONS, ("uid-1", "11", "AllReduce", "kernel")] == 2
    assert page[metrics.INSPECTOR_SECONDS, ("uid-1", "11", "Send", "host")] == 0.00025


def test_counts_of_an_ended_process_stay_while_its_pod_is_there(node):
    node.log.write_text(line())
    node.page()
    node.log.unlink()
    assert node.page()[metrics.INSPECTOR_OPERATIONS, ALL_REDUCE] == 1
    (node.pod / "gpu-00-pid4999.log").write_text(line())
    assert node.page()[metrics.INSPECTOR_OPERATIONS, ALL_REDUCE] == 2
    (node.root / "kubelet" / "pods" / "uid-1").rename(node.root / "gone")
    (node.root / "logs" / "nccl-inspector-7").mkdir(parents=True)
    assert (metrics.INSPECTOR_OPERATIONS, ALL_REDUCE) not in node.page()


def test_what_inspector_dropped_is_counted(node):
    stats = {"coll_dropped_since_last_dump": 7, "p2p_dropped_since_last_dump": 2}
    node.log.write_text(json.dumps({"header": header(0, 2), "dump_stats": stats}) + "\n")
    assert node.page()[metrics.INSPECTOR_DROPPED, ()] == 9


def test_a_file_that_grows_too_fast_is_skipped_ahead_and_that_is_counted(node):
    node.log.write_text(line() * (MAX_LAG // len(line()) + 100))
    page = node.page()
    size = node.log.stat().st_size
    assert page[metrics.INSPECTOR_SKIPPED, ()] == size - READ_BYTES
    assert 0 < page[metrics.INSPECTOR_OPERATIONS, ALL_REDUCE] <= READ_BYTES // len(line())
    assert page[metrics.INSPECTOR_UNPARSED, ()] == 1


def test_reading_stops_at_the_budget_and_goes_on_later(node, monkeypatch):
    read_one = node.follower._read_one

    def costly(log):
        node.cpu += 0.6
        return read_one(log)

    monkeypatch.setattr(node.follower, "_read_one", costly)
    node.log.write_text(line() * 1000)
    first = node.page()[metrics.INSPECTOR_OPERATIONS, ALL_REDUCE]
    assert 0 < first < 1000
    for _ in range(20):
        last = node.page()[metrics.INSPECTOR_OPERATIONS, ALL_REDUCE]
    assert last == 1000


def test_reading_stops_where_it_takes_long_without_cpu_time(node, monkeypatch):
    read_one = node.follower._read_one

    def waiting(log):
        node.now += 1.5
        return read_one(log)

    monkeypatch.setattr(node.follower, "_read_one", waiting)
    node.log.write_text(line() * 1000)
    counts = [node.page()[metrics.INSPECTOR_OPERATIONS, ALL_REDUCE] for _ in range(20)]
    assert 0 < counts[0] < counts[1] <= counts[-1] == 1000


def test_a_file_under_thousands_of_names_is_not_read_under_any(node):
    """The agent's clock of CPU time says what looking for them takes."""
    text = "".join(prom("nccl_bus_bandwidth_gbs", 400) for _ in range(2000))
    first = node.pod / PROM
    first.write_text(text)
    for number in range(500):
        os.link(first, node.pod / f"nccl_inspector_metrics_{UUID[:-4]}{number:04x}.prom")
        os.link(first, node.pod / f"gpu-pid{number}.log")
    page = node.page()
    assert page[metrics.INSPECTOR_FILES, ()] == 0
    assert page[metrics.INSPECTOR_REFUSED, ()] == 1001
    assert not [key for key in page if key[0] is metrics.INSPECTOR_GPU_BANDWIDTH]


def test_four_thousand_names_of_large_files_cost_looking_at_names_and_nothing_else(
    tmp_path, monkeypatch
):
    """By the collector as an agent makes it; to read such files anew took minutes."""
    volume = tmp_path / "pods" / "uid-1" / "volumes" / "kubernetes.io~empty-dir" / "rankscope"
    pod = volume / "nccl-inspector"
    pod.mkdir(parents=True)
    (pod / PROM).write_text(prom("nccl_bus_bandwidth_gbs", 400) * 20_000)
    (pod / "node-pid1.log").write_text(line() * 20_000)
    for number in range(2000):
        os.link(pod / PROM, pod / f"nccl_inspector_metrics_{UUID[:-4]}{number:04x}.prom")
        os.link(pod / "node-pid1.log", pod / f"node-pid{number + 2}.log")
    bytes_read, opened, real_open, real_read = [], [], os.open, os.pread

    def counted_read(descriptor, size, offset):
        bytes_read.append(size)
        return real_read(descriptor, size, offset)

    def counted_open(path, *rest, **named):
        opened.append(path)
        return real_open(path, *rest, **named)

    monkeypatch.setattr(os, "pread", counted_read)
    monkeypatch.setattr(os, "open", counted_open)
    settings = SimpleNamespace(kubelet=tmp_path, inspector_dirs=(), interval_seconds=1.0)
    collector = create(settings, PodDirectory())
    for number in range(3):
        (pod / f"changed-{number}").touch()
        collector._scanned = float("-inf")
        page = {sample.metric: sample.value for sample in collector.collect()}
        assert page[metrics.INSPECTOR_REFUSED] == 4002
        assert page[metrics.INSPECTOR_FILES] == 0
    assert bytes_read == []
    assert len(opened) < 100, "directories alone"


def test_a_pod_speaks_for_the_gpus_that_it_holds_alone(node):
    other = PROM.replace("3f2a91c0", "4f2a91c0")
    for name in (PROM, other):
        (node.pod / name).write_text(prom("nccl_bus_bandwidth_gbs", 400))
    page = node.page()
    speakers = {key[1][0] for key in page if key[0] is metrics.INSPECTOR_GPU_BANDWIDTH}
    assert speakers == {f"GPU-{UUID}"}
    assert page[metrics.INSPECTOR_REFUSED, ()] == 1
    node.held = {}
    page = node.page()
    assert not [key for key in page if key[0] is metrics.INSPECTOR_GPU_BANDWIDTH]
    assert page[metrics.INSPECTOR_REFUSED, ()] == 2


def test_means_of_gpus_are_read_within_the_budget_and_only_when_they_change(node, monkeypatch):
    parsed = []
    parse = textfile.parse

    def costly(text):
        parsed.append(len(text))
        node.cpu += 3.0  # three runs' budget
        return parse(text)

    monkeypatch.setattr(textfile, "parse", costly)
    uuids = [f"{UUID[:-4]}{number:04x}" for number in range(4)]
    node.held = {"uid-1": {f"GPU-{uuid}" for uuid in uuids}}
    for uuid in uuids:
        path = node.pod / PROM.replace(UUID, uuid)
        path.write_text(prom("nccl_bus_bandwidth_gbs", 400))
    counts = []
    for _ in range(12):
        node.page()
        counts.append(len(parsed))
    assert counts == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4], "one file every three runs"
    for _ in range(6):
        node.page()
    assert len(parsed) == 4
    page = node.page()
    assert len([key for key in page if key[0] is metrics.INSPECTOR_GPU_BANDWIDTH]) == 4


def test_directories_that_have_not_changed_are_not_listed_again(node, monkeypatch):
    listed = []

    def counting(descriptor):
        listed.append(descriptor)
        return list_files(descriptor)

    monkeypatch.setattr(follower_module, "list_files", counting)
    node.log.write_text(line())
    for _ in range(3):
        node.page()
    assert len(listed) == 1
    (node.pod / "gpu-00-pid4712.log").write_text(line(rank=4))
    assert node.page()[metrics.INSPECTOR_FILES, ()] == 2
    assert len(listed) == 2


def test_looking_for_files_ends_at_its_budget_and_begins_elsewhere_next_time(node, monkeypatch):
    def costly(descriptor):
        node.cpu += follower_module.SCAN_SECONDS
        return list_files(descriptor)

    monkeypatch.setattr(follower_module, "list_files", costly)
    for number in range(2, 5):
        folder = node.pod.parents[4] / f"uid-{number}" / node.pod.relative_to(node.pod.parents[3])
        folder.mkdir(parents=True)
        (folder / "gpu-00-pid1.log").write_text(line())
    node.log.write_text(line())
    found = []
    for _ in range(8):
        page = node.page()
        found.append(page[metrics.INSPECTOR_FILES, ()])
    assert found[0] == 1
    assert found == sorted(found)
    assert found[-1] == 4


def test_directories_outside_of_pods_are_given_by_a_setting(node):
    folder = node.root / "logs" / "nccl-inspector-77"
    folder.mkdir(parents=True)
    (folder / "gpu-00-pid1.log").write_text(line())
    assert node.page()[metrics.INSPECTOR_OPERATIONS, ("", *ALL_REDUCE[1:])] == 1


def test_a_node_without_inspector_has_no_data(tmp_path):
    follower = InspectorFollower(tmp_path / "kubelet", (), lambda: 0.0, 1.0)
    with pytest.raises(NoData, match=r"--nccl\.inspector-dirs"):
        list(NcclInspectorCollector(follower, Clock(0.0)).collect())


def test_links_and_fifos_are_not_read(node):
    secret = node.root / "secret-pid1.log"
    secret.write_text(line())
    (node.pod / "a-pid1.log").symlink_to(secret)
    os.mkfifo(node.pod / "b-pid2.log")
    (node.pod / PROM).symlink_to(secret)
    page = node.page()
    assert page[metrics.INSPECTOR_FILES, ()] == 0


def test_a_file_that_gets_a_second_name_after_it_was_listed_is_not_opened(tmp_path):
    (tmp_path / "a").write_text(line())
    directory = os.open(tmp_path, os.O_RDONLY)
    os.close(open_file(directory, "a"))
    os.link(tmp_path / "a", tmp_path / "b")
    assert open_file(directory, "a") is None
    os.close(directory)


def test_a_directory_that_is_a_link_is_not_entered(node):
    outside = node.root / "outside"
    outside.mkdir()
    (outside / "a-pid1.log").write_text(line())
    node.pod.rmdir()
    node.pod.symlink_to(outside)
    with pytest.raises(NoData):
        node.page()


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "{" * 5000,
        '{"header": 3, "coll_perf": {}}',
        line(rank=16, nranks=16),
        line(rank=-1),
        line(coll_exec_time_us=-1),
        line(coll_exec_time_us=10**30),
        line(coll_exec_time_us=float("nan")),
        line(coll_exec_time_us=1e300),
        line(coll_exec_time_us="5663"),
        line(coll_msg_size_bytes=True),
        line(coll_timing_source="guess"),
        line()[:-20],
    ],
)
def test_lines_that_cannot_be_true_are_refused(text):
    assert records.parse(text.encode()) is None


def test_names_of_a_file_become_labels_only_if_they_are_known(node):
    node.log.write_text("".join(line(coll=f"Evil{n}") for n in range(50)))
    page = node.page()
    assert page[metrics.INSPECTOR_OPERATIONS, ("uid-1", "3", "other", "kernel")] == 50
    assert "Evil" not in str([labels for _, labels in page])


def test_means_of_a_gpu_are_those_of_its_largest_messages(node):
    text = (
        prom("nccl_bus_bandwidth_gbs", 20, message_size="4-5KB")
        + prom("nccl_collective_exec_time_microseconds", 30, message_size="4-5KB")
        + prom("nccl_bus_bandwidth_gbs", 410.5, message_size="1-2GB")
        + prom("nccl_collective_exec_time_microseconds", 5200, message_size="1-2GB")
        + prom("nccl_p2p_bus_bandwidth_gbs", 44, op="Send", n_nodes=1)
        + prom("nccl_collectives_total", 3)
    )
    (node.pod / PROM).write_text(text)
    page = node.page()
    gpu = (f"GPU-{UUID}", "AllReduce", "inter_node")
    assert page[metrics.INSPECTOR_GPU_BANDWIDTH, gpu] == pytest.approx(410.5e9)
    assert page[metrics.INSPECTOR_GPU_SECONDS, gpu] == pytest.approx(0.0052)
    sent = (f"GPU-{UUID}", "Send", "intra_node")
    assert page[metrics.INSPECTOR_GPU_BANDWIDTH, sent] == pytest.approx(44e9)
    assert (metrics.INSPECTOR_GPU_SECONDS, sent) not in page


def test_a_file_that_is_not_written_any_more_has_no_values(node):
    path = node.pod / PROM
    path.write_text(prom("nccl_bus_bandwidth_gbs", 400))
    assert (metrics.INSPECTOR_GPU_BANDWIDTH, (f"GPU-{UUID}", "AllReduce", "inter_node")) in (
        node.page()
    )
    os.utime(path, (1, 1))
    assert node.page()[metrics.INSPECTOR_FILES, ()] == 0
