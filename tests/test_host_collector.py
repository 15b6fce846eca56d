"""A node in trees like procfs, sysfs and the kubelet's directory, and the real one we run on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rankscope_agent.contract.metrics import host as metrics
from rankscope_agent.settings.command_line import parse_config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.host.collector import HostCollector, create
from rankscope_agent.sources.host.pod_groups import PodGroups
from rankscope_agent.sources.pods.directory import PodDirectory
from rdma_files import write

LOOK_SECONDS = 5.0
POD_SECONDS = 30.0

UID = "0a1b2c3d-1111-2222-3333-444455556666"
OTHER = "0a1b2c3d-1111-2222-3333-444455557777"
SLICE = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice"


class Node:
    def __init__(self, root: Path, *, whole_node: bool = True, members: tuple[str, ...] = ()):
        self.now = 0.0
        self.procfs, self.sysfs, self.kubelet = root / "proc", root / "sys", root / "kubelet"
        self.collector = HostCollector(
            self.procfs,
            self.sysfs,
            self.kubelet,
            lambda: members,
            lambda: self.now,
            whole_node=whole_node,
        )

    def look(self, later: float = POD_SECONDS):
        self.now += later
        samples = list(self.collector.collect())
        series = {(sample.metric, sample.labels): sample.value for sample in samples}
        assert len(series) == len(samples), "a series came twice"
        return series

    def pod(self, uid: str = UID, place: str = "") -> Path:
        """Add a training pod; return its cgroup."""
        volume = self.kubelet / "pods" / uid / "volumes" / "kubernetes.io~empty-dir" / "rankscope"
        volume.mkdir(parents=True)
        group = self.sysfs / "fs" / "cgroup" / (place or SLICE.format(uid.replace("-", "_")))
        for file, text in (
            ("io.stat", "259:0 rbytes=100 wbytes=200 rios=3 wios=4"),
            ("cpu.stat", "usage_usec 5\nnr_periods 10\nnr_throttled 2\nthrottled_usec 500000"),
            ("memory.events", "low 0\noom 1\noom_kill 1"),
            ("io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=4000000"),
        ):
            write(group / file, text)
        return group


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    write(made.procfs / "meminfo", "MemTotal: 100 kB\nMemAvailable: 40 kB")
    return made


def test_the_nodes_tables_become_series(node):
    procfs, sysfs = node.procfs, node.sysfs
    line = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n"
    write(procfs / "pressure" / "io", line + line.replace("some", "full"))
    write(procfs / "pressure" / "cpu", line + line.replace("some", "full"))
    write(procfs / "vmstat", "oom_kill 2")
    write(procfs / "loadavg", "0.1 0.1 0.1 1/500 99")
    write(procfs / "sys" / "kernel" / "pid_max", 1000)
    write(procfs / "sys" / "kernel" / "threads-max", 4000)
    write(procfs / "net" / "softnet_stat", "00000001 00000002 00000003")
    write(procfs / "stat", "cpu 1 2\nbtime 1700000000")
    write(procfs / "sys" / "kernel" / "random" / "boot_id", UID)
    controller = sysfs / "devices" / "system" / "edac" / "mc" / "mc1"
    write(controller / "ce_count", 5)
    write(controller / "ue_count", 0)
    write(sysfs / "class" / "nvme" / "nvme0" / "state", "live")
    write(sysfs / "class" / "nvme" / "nvme1" / "state", "resetting")
    write(sysfs / "class" / "nvme" / "nvme1" / "reset_count", 3)
    series = node.look()
    assert series[metrics.PRESSURE, ("io", "full")] == 1.5
    assert (metrics.PRESSURE, ("cpu", "full")) not in series
    assert series[metrics.MEMORY_AVAILABLE, ()] == 40960
    assert series[metrics.OOM_KILLS, ()] == 2
    assert series[metrics.PIDS_USED, ()] == 0.5
    assert series[metrics.SOFTNET_DROPPED, ()] == 2
    assert series[metrics.BOOT_TIME, ()] == 1_700_000_000
    assert series[metrics.BOOT_INFO, (UID,)] == 1
    assert series[metrics.EDAC_ERRORS, ("corrected",)] == 5
    assert series[metrics.EDAC_CONTROLLER, ("mc1", "corrected")] == 5
    assert (metrics.EDAC_CONTROLLER, ("mc1", "uncorrected")) not in series
    assert series[metrics.NVME_CONTROLLERS, ("live",)] == 1
    assert series[metrics.NVME_CONTROLLERS, ("other",)] == 1
    assert series[metrics.NVME_EVENTS, ("nvme1", "reset")] == 3


@pytest.mark.parametrize(
    "place",
    [
        "",
        f"kubepods/burstable/pod{UID}",
        f"kubepods/pod{UID}",
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice",
    ],
)
def test_a_training_pods_cgroup_is_found_under_any_driver(node, place):
    node.pod(place=place)
    series = node.look()
    assert series[metrics.POD_IO_BYTES, (UID, "read")] == 100
    assert series[metrics.POD_IO_OPERATIONS, (UID, "write")] == 4
    assert series[metrics.POD_THROTTLED, (UID,)] == 0.5
    assert series[metrics.POD_PERIODS, (UID, "throttled")] == 2
    assert series[metrics.POD_PRESSURE, (UID, "io")] == 4
    assert series[metrics.POD_OOM_KILLS, (UID,)] == 1


def test_pods_of_jobs_count_as_training_without_a_ring_and_others_do_not(tmp_path):
    node = Node(tmp_path, members=(OTHER,))
    write(node.procfs / "meminfo", "MemTotal: 100 kB")
    for uid in (UID, OTHER):
        node.pod(uid)
    (node.kubelet / "pods" / UID / "volumes" / "kubernetes.io~empty-dir" / "rankscope").rmdir()
    labels = {labels for metric, labels in node.look() if metric is metrics.POD_OOM_KILLS}
    assert labels == {(OTHER,)}


def test_a_pod_that_ends_leaves_no_series(node):
    group = node.pod()
    node.look()
    for file in group.iterdir():
        file.unlink()
    group.rmdir()
    assert not [labels for metric, labels in node.look() if labels[:1] == (UID,)]


def test_values_stand_between_two_looks_and_move_at_the_next(node):
    node.look()
    write(node.procfs / "meminfo", "MemTotal: 100 kB\nMemAvailable: 10 kB")
    assert node.look(later=LOOK_SECONDS / 2)[metrics.MEMORY_AVAILABLE, ()] == 40960
    assert node.look(later=LOOK_SECONDS)[metrics.MEMORY_AVAILABLE, ()] == 10240


def test_limits_and_shared_memory_are_those_of_the_largest_container(node):
    group = node.pod()
    write(group / "a_sandbox" / "cgroup.procs", "11")
    write(group / "b_trainer" / "cgroup.procs", "21\n22\n23")
    limits = "Max locked memory         {}            8388608              bytes"
    write(node.procfs / "11" / "limits", limits.format(65536))
    write(node.procfs / "21" / "limits", limits.format("unlimited"))
    shm = "30 1 99999:27 / /dev/shm rw - tmpfs tmpfs rw,size=65536k"
    write(node.procfs / "21" / "mountinfo", shm)
    series = node.look()
    assert series[metrics.MEMLOCK, (UID,)] == math.inf
    assert series[metrics.SHM_SIZE, (UID,)] == 64 << 20
    assert (metrics.SHM_USED, (UID,)) not in series


def test_a_mount_that_a_pod_may_have_made_is_not_asked(node):
    group = node.pod()
    write(group / "trainer" / "cgroup.procs", "21")
    write(node.procfs / "21" / "mountinfo", "30 1 0:27 / /dev/shm rw - fuse.evil evil rw")
    assert not [labels for metric, labels in node.look() if metric is metrics.SHM_SIZE]


def test_processes_of_another_space_than_the_nodes_are_not_looked_at(node):
    group = node.pod()
    write(group / "trainer" / "cgroup.procs", "0\n0")
    assert not [labels for metric, labels in node.look() if metric is metrics.MEMLOCK]


def test_in_a_pods_own_procfs_process_1_is_not_taken_for_the_nodes(tmp_path):
    node = Node(tmp_path, whole_node=False)
    write(node.procfs / "meminfo", "MemTotal: 100 kB")
    write(node.procfs / "1" / "limits", "Max locked memory         5            5     bytes")
    assert not [labels for metric, labels in node.look() if metric is metrics.MEMLOCK]


def test_nfs_of_training_pods_and_of_the_node_is_shown_and_of_others_not(node):
    node.pod()
    places = ("/mnt", f"/kubelet/pods/{UID}/volumes/x", f"/kubelet/pods/{OTHER}/volumes/x")
    text = "".join(
        f"device nas:/{index} mounted on {place} with fstype nfs statvers=1.1\n"
        "\t READ: 10 11 0 5 6 7 2000 9 0\n"
        for index, place in enumerate(places)
    )
    write(node.procfs / "1" / "mountstats", text)
    series = node.look()
    assert series[metrics.NFS_ROUND_TRIP, (UID, "read")] == 2
    assert series[metrics.NFS_RETRANSMISSIONS, ("", "read")] == 1
    assert (metrics.NFS_OPERATIONS, (OTHER, "read")) not in series


def test_links_and_loops_among_cgroups_are_not_followed(tmp_path):
    root = tmp_path / "cgroup"
    (root / "kubepods").mkdir(parents=True)
    (root / "kubepods" / "kubepods-loop").symlink_to(root)
    assert PodGroups(root).find([UID]) == ()


def test_a_missing_procfs_is_no_data(tmp_path):
    with pytest.raises(NoData, match=r"--path\.procfs"):
        Node(tmp_path).look()


def test_the_machine_we_run_on_says_its_memory_disk_and_boot():
    config = parse_config([], {}, ("host",), "1")
    series = {s.metric: s.value for s in create(config, PodDirectory()).collect()}
    assert 0 < series[metrics.MEMORY_AVAILABLE] < series[metrics.MEMORY_TOTAL]
    assert 0 < series[metrics.DISK_USED] < 1
    assert 0 < series[metrics.PIDS_USED] < 1
    assert series[metrics.BOOT_INFO] == 1
