"""The last that is still taken and the first that is not, of each limit on the host's files."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_agent.contract.metrics import host as metrics
from rankscope_agent.sources import kernel_files
from rankscope_agent.sources.host import clock as host_clock
from rankscope_agent.sources.host import node, pod_samples
from rankscope_agent.sources.host.clock import parse_timex
from rankscope_agent.sources.host.nfs import parse_mountstats
from rankscope_agent.sources.host.pod_groups import PodGroups, training_volumes
from rankscope_agent.sources.host.tables import parse_flat
from rankscope_agent.sources.kernel_files import read_bytes
from rankscope_agent.sources.rdma import port, tree
from rankscope_agent.sources.rdma.collector import RdmaCollector
from rankscope_agent.sources.rdma.counter_file import CounterFile
from rankscope_agent.sources.rdma.counters import CounterFolder, Counters
from rankscope_agent.sources.rdma.names import rule_for
from rankscope_agent.sources.rdma.values import parse_count
from rdma_files import add_port, write
from standing_clock import Clock
from test_host_collector import UID, Node


def found(samples, metric):
    return [sample.value for sample in samples if sample.metric is metric]


def padded(size, text):
    """Return a table of so many bytes that ends in a line."""
    return text.rjust(size, "\n")


def test_a_page_is_read_of_a_kernel_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a" * 5000)
    assert len(read_bytes(path)) == 4096


@pytest.mark.parametrize(("size", "values"), [(1 << 18, [37]), ((1 << 18) + 1, [3])])
def test_256_kibibytes_are_read_of_a_table(tmp_path, size, values):
    write(tmp_path / "vmstat", padded(size, "oom_kill 37"))
    assert found(node.memory(tmp_path), metrics.OOM_KILLS) == values


@pytest.mark.parametrize(("size", "count"), [(1 << 20, 1), ((1 << 20) + 1, 0)])
def test_a_mebibyte_is_read_of_a_table_of_mounts(tmp_path, size, count):
    mount = "1 2 0:25 / /dev/shm rw - tmpfs shm rw,size=64k"
    write(tmp_path / "7" / "mountinfo", padded(size, mount))
    samples = list(pod_samples.process_samples(tmp_path, UID, 7))
    assert len(found(samples, metrics.SHM_SIZE)) == count


NFS = (
    "device server:/e{} mounted on /var/lib/kubelet/pods/" + UID + "/volumes/v with fstype nfs4"
    " statvers=1.1\n\tREAD: 10 12 1 5 5 5 100 5 0\n"
)


@pytest.mark.parametrize(("size", "known"), [(4 << 20, True), ((4 << 20) + 12, False)])
def test_four_mebibytes_are_read_of_the_nodes_mounts(tmp_path, size, known):
    host = Node(tmp_path, members=(UID,))
    write(host.procfs / "loadavg", "0 0 0 1/100 7")
    write(host.procfs / "sys" / "kernel" / "pid_max", "1000")
    write(host.procfs / "1" / "mountstats", padded(size, NFS.format(0).rstrip()))
    assert any(metric.name.startswith("rankscope_nfs") for metric, _ in host.look()) is known


@pytest.mark.parametrize("exports", [4095, 4096, 4097])
def test_4096_mounts_are_looked_at(exports):
    text = "".join(map(NFS.format, range(exports)))
    ((_, totals),) = parse_mountstats("no mounts above\n" + text).items()
    assert totals.operations == 10 * min(exports, 4096)


@pytest.mark.parametrize(("folder", "file"), [("devices/system/edac/mc", "ce_count")])
def test_64_controllers_are_looked_at(tmp_path, folder, file):
    for index in range(65):
        write(tmp_path / folder / f"mc{index}" / file, "1")
        write(tmp_path / "class" / "nvme" / f"nvme{index}" / "state", "live")
    assert found(node.memory_errors(tmp_path), metrics.EDAC_ERRORS) == [64]
    assert found(node.nvme(tmp_path), metrics.NVME_CONTROLLERS)[0] == 64


def uid(index):
    return f"0a1b2c3d-1111-2222-3333-{index:012d}"


def test_64_pods_have_groups_and_no_more(tmp_path):
    for index in range(66):
        (tmp_path / f"pod{uid(index)}").mkdir()
    assert len(PodGroups(tmp_path).find(map(uid, range(66)))) == 64


@pytest.mark.parametrize(("depth", "known"), [(5, 1), (6, 0)])
def test_groups_are_sought_below_five_folders(tmp_path, depth, known):
    way = "/".join(["kubepods"] * depth)
    (tmp_path / way / f"pod{uid(1)}").mkdir(parents=True)
    assert len(PodGroups(tmp_path).find([uid(1)])) == known


def test_4096_entries_of_a_folder_are_looked_at(monkeypatch, tmp_path):
    """Real folders of this size take a second to make: the listing is given."""
    (tmp_path / "pods").mkdir()
    names = [f"{index:06d}" for index in range(5000)]
    monkeypatch.setattr(kernel_files, "natural", lambda listed: names)
    monkeypatch.setattr("pathlib.Path.is_dir", lambda path: True)
    assert len(list(training_volumes(tmp_path))) == 4096


def test_counters_of_64_bits_are_taken():
    text = f"a {2**64 - 1}\nb {2**64}\n"
    assert parse_flat(text) == {"a": 2**64 - 1}


def test_what_is_slow_to_look_at_is_looked_at_twice_a_minute(tmp_path):
    host = Node(tmp_path)
    write(host.procfs / "loadavg", "0 0 0 1/100 7")
    write(host.procfs / "sys" / "kernel" / "pid_max", "1000")
    assert (metrics.BOOT_TIME, ()) not in host.look()
    write(host.procfs / "stat", "btime 5")
    assert (metrics.BOOT_TIME, ()) not in host.look(later=29.0)
    assert (metrics.BOOT_TIME, ()) in host.look(later=2.0)


def test_a_clock_that_the_kernel_calls_wrong_is_no_failure_to_ask(monkeypatch):
    answers = iter([5, -1])  # TIME_ERROR of linux/timex.h, and the failure of the call
    library = SimpleNamespace(adjtimex=lambda buffer: next(answers))
    monkeypatch.setattr(host_clock.ctypes, "CDLL", lambda *name, use_errno: library)
    monkeypatch.setattr(host_clock.ctypes, "get_errno", lambda: 1)
    assert host_clock.read_clock() == parse_timex(bytes(256))
    with pytest.raises(PermissionError):
        host_clock.read_clock()


def test_a_count_has_64_bits_and_their_last_value_is_none():
    assert parse_count(str(2**64 - 2).encode()) == 2**64 - 2
    assert parse_count(str(2**64 - 1).encode()) is None, "all bits set: the driver has no count"


@pytest.mark.parametrize("kept", [False, True])
def test_a_counters_file_is_read_for_32_bytes(tmp_path, kept):
    path = write_raw(tmp_path / "port_rcv_packets", b"0" * 31 + b"7" + b"8" * 8)
    folder = CounterFolder(tmp_path, lambda name: rule_for("counters", name))
    counters = Counters([folder], ("mlx5_0", "1"), everything=True, may_keep=lambda: kept)
    counters.refresh()
    counters.samples()
    assert counters.value(path.name) == 7
    counters.close()


def write_raw(path, data):
    path.write_bytes(data)
    return path


def test_a_folder_whose_first_two_counters_cannot_be_read_is_given_up(tmp_path, monkeypatch):
    for index in range(4):
        write(tmp_path / f"port_rcv_errors{index}", "1")
    opened = []

    def refuse(self):
        opened.append(self.path.name)
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(CounterFile, "read", refuse)
    folder = CounterFolder(tmp_path, lambda name: rule_for("counters", "port_rcv_errors"))
    counters = Counters([folder], ("mlx5_0", "1"), everything=True, may_keep=lambda: False)
    counters.refresh()
    assert len(opened) == 2
    assert counters.unreadable == 4


def test_256_files_of_a_folder_are_counters(tmp_path):
    for index in range(257):
        write(tmp_path / f"odd {index}", "1")
    folder = CounterFolder(tmp_path, lambda name: None)
    counters = Counters([folder], ("mlx5_0", "1"), everything=True, may_keep=lambda: False)
    counters.refresh()
    assert counters.left_off + counters._unlabelled >= 256
    assert counters._unlabelled == 256


def test_64_bytes_are_read_of_a_ports_state(tmp_path):
    status = port.StatusFile(write_raw(tmp_path / "rate", b"x" * 100))
    status.refresh()
    assert status.read()
    status.close()
    assert status.text == "x" * 64


def test_16_ports_of_a_device_and_512_devices_are_looked_at(tmp_path, monkeypatch):
    for number in range(1, 18):
        add_port(tmp_path, "mlx5_0", number, counters={}, hw_counters={})
    devices = tree.RdmaTree(tmp_path, 0, everything=False)
    devices.refresh()
    ports = {s.labels[1] for s in devices.samples() if s.metric.name == "rankscope_rdma_port_state"}
    devices.close()
    assert len(ports) == 16
    listed = [f"mlx5_{index}" for index in range(600)]
    monkeypatch.setattr(kernel_files, "natural", lambda names: listed)
    monkeypatch.setattr("pathlib.Path.is_dir", lambda path: True)
    assert len(devices._list_devices()) == 512


def test_the_tree_is_looked_for_changes_every_ten_seconds(tmp_path):
    add_port(tmp_path)
    clock = Clock()
    collector = RdmaCollector(tree.RdmaTree(tmp_path, 0, everything=False), tmp_path, clock)

    def devices():
        return {s.labels[0] for s in collector.collect() if "info" in s.metric.name}

    assert devices() == {"mlx5_0"}
    add_port(tmp_path, "mlx5_1")
    clock.now += 9.9
    assert devices() == {"mlx5_0"}
    clock.now += 0.2
    assert devices() == {"mlx5_0", "mlx5_1"}
    collector._tree.close()
