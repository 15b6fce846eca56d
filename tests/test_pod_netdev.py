"""Interfaces inside training pods: real network namespaces, and what hostile ones try."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope_agent.contract.metrics import pod_netdev as metrics
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.host.pod_groups import PodGroups
from rankscope_agent.sources.netdev.inside import InsideLink, Visit, inside_link
from rankscope_agent.sources.netdev.namespace import effective_capabilities, may_enter_networks
from rankscope_agent.sources.netdev.tables import Traffic
from rankscope_agent.sources.pod_netdev import collector as pod_netdev
from rankscope_agent.sources.pod_netdev.collector import PodNetdevCollector
from rankscope_agent.sources.pod_netdev.interfaces import (
    PodNetwork,
    deal_out,
    is_nodes_own,
)
from running_agent import agent_environment

ENTER_SECONDS = 30.0
LOOK_SECONDS = 5.0
MAX_PER_NODE = 64
MAX_PER_POD = 16

UID = "8f1c2f5e-0d55-4d3a-9c55-0123456789ab"
JOB = "team/llm"
OTHER = "8f1c2f5e-0d55-4d3a-9c55-0123456789ac"
FRAMES = 7


class Node:
    """A node whose pods are cgroups in a folder; their processes are real ones, or files."""

    def __init__(self, path: Path) -> None:
        self.procfs = path / "proc"
        self.cgroups = path / "cgroup"
        self.uids: list[str] = []
        self.now = 0.0
        self.procfs.mkdir()
        (self.procfs / "1").symlink_to("/proc/1")

    def pod(self, uid: str, pid: int, cgroup: str | None = None) -> None:
        """Let a process be of a pod; `cgroup` is what it says itself, if it is of another one."""
        self.uids.append(uid)
        group = self.cgroups / "kubepods" / f"pod{uid}" / ("c" * 64)
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text(f"{pid}\n")
        folder = self.procfs / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(cgroup or f"0::/kubepods/pod{uid}/{'c' * 64}\n")

    def real(self, uid: str, pid: int) -> None:
        self.pod(uid, pid)
        for name in ("net", "ns"):
            (self.procfs / str(pid) / name).symlink_to(f"/proc/{pid}/{name}")

    def made_up(self, uid: str, pid: int, table: str, cgroup: str | None = None) -> None:
        self.pod(uid, pid, cgroup)
        (self.procfs / str(pid) / "net").mkdir()
        (self.procfs / str(pid) / "net" / "dev").write_text(table)
        (self.procfs / str(pid) / "ns").mkdir()
        (self.procfs / str(pid) / "ns" / "net").write_text("")

    def collector(self, enter=None, *, whole_node=True) -> PodNetdevCollector:
        return PodNetdevCollector(
            self.procfs,
            PodGroups(self.cgroups),
            lambda: self.uids,
            lambda uid: JOB,
            enter,
            lambda: self.now,
            whole_node=whole_node,
        )


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def table(*names: str, count: int = 5) -> str:
    numbers = " ".join([str(count)] * 16)
    return "\n".join(["Inter-| x", " face |x", *(f"{name:>6}: {numbers}" for name in names)]) + "\n"


def values(samples) -> dict[tuple[str, ...], float]:
    return {(sample.metric.name, *sample.labels): sample.value for sample in samples}


def devices(samples) -> set[str]:
    return {s.labels[2] for s in samples if "device" in s.metric.labels}


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.fixture
def pod_process():
    """Give a process in a network of its own: eth0 is a veth, net1 a macvlan on it, MTU 1400."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    namespace = f"rankscope-pod-{os.getpid()}"
    outer = f"rs{os.getpid()}"[:15]
    made = subprocess.run(["ip", "netns", "add", namespace], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no network namespaces here: {made.stderr.decode().strip()}")
    process = None
    try:
        ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("-n", namespace, "link", "set", "eth0", "mtu", "1400", "up")
        ip("link", "set", outer, "up")
        ip("-n", namespace, "link", "add", "link", "eth0", "name", "net1", "type", "macvlan")
        ip("-n", namespace, "link", "set", "net1", "up")
        process = subprocess.Popen(["ip", "netns", "exec", namespace, "sleep", "600"])
        _await_namespace(process.pid)
        yield process, outer, namespace
    finally:
        if process is not None:
            process.kill()
            process.wait()
        subprocess.run(["ip", "link", "del", outer], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", namespace], check=True)


def _await_namespace(pid: int) -> None:
    deadline = time.monotonic() + 30
    own = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{pid}/ns/net").readlink() == own and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_jobs_own_interfaces_are_seen_with_traffic_kind_mtu_and_speed(node, pod_process):
    process, outer, _ = pod_process
    node.real(UID, process.pid)
    collector = node.collector(Visit)
    before = values(collector.collect())
    _send(outer)
    node.now = LOOK_SECONDS
    after = values(collector.collect())
    series = ("rankscope_pod_nic_receive_bytes_total", JOB, UID, "eth0")
    assert after[series] - before[series] >= FRAMES * 1000
    assert after["rankscope_pod_nic_info", JOB, UID, "eth0", "veth"] == 1
    assert after["rankscope_pod_nic_info", JOB, UID, "net1", "macvlan"] == 1
    assert after["rankscope_pod_nic_mtu_bytes", JOB, UID, "eth0"] == 1400
    assert after["rankscope_pod_nic_up", JOB, UID, "eth0"] == 1
    assert after["rankscope_pod_nic_speed_bytes_per_second", JOB, UID, "eth0"] == 10e9 / 8
    assert devices(collector.collect()) == {"eth0", "net1"}


def _send(interface: str) -> None:
    """Send frames into the pod."""
    frame = b"\xff" * 12 + b"\x88\xb5" + bytes(1000)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((interface, 0))
        for _ in range(FRAMES):
            sender.send(frame)


def test_a_visit_leaves_all_other_threads_where_they_are(node, pod_process):
    process, *_ = pod_process
    node.real(UID, process.pid)
    own = Path("/proc/thread-self/ns/net").stat().st_ino
    open_before = len([*Path("/proc/self/fd").iterdir()])
    collector = node.collector(Visit)
    for visit in range(5):
        node.now = visit * ENTER_SECONDS
        assert devices(collector.collect())
    assert Path("/proc/thread-self/ns/net").stat().st_ino == own
    assert len([*Path("/proc/self/fd").iterdir()]) == open_before
    assert not [thread for thread in threading.enumerate() if thread.name == "pod-network"]


def test_an_agent_without_any_privilege_reads_counters_and_nothing_else(pod_process):
    process, *_ = pod_process
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from rankscope_agent.sources.host.pod_groups import PodGroup\n"
        "from rankscope_agent.sources.pod_netdev.interfaces import read_network\n"
        "pid, root = sys.argv[1], Path(sys.argv[2])\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "found = read_network(root / 'proc', PodGroup(sys.argv[3], root / sys.argv[4]))\n"
        "print(sorted(found.traffic))\n"
        "os.open(f'/proc/{pid}/ns/net', os.O_RDONLY)\n"
    )
    # Not below pytest's own folder, which is closed to other users again and again.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        Node(Path(folder)).real(UID, process.pid)
        group = f"cgroup/kubepods/pod{UID}"
        command = [sys.executable, "-c", script, str(process.pid), folder, UID, group]
        environment = agent_environment()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=60
        )
    assert done.stdout == "['eth0', 'net1']\n", done.stderr
    assert "PermissionError" in done.stderr


def test_a_pod_in_the_nodes_network_has_no_interfaces_of_its_own(node):
    node.real(UID, os.getpid())
    assert list(node.collector(Visit).collect()) == []


def test_names_that_a_pod_makes_up_are_counted_and_never_become_labels(node, pod_process):
    process, _, namespace = pod_process
    for name in ('a"b}', "$(id)", "\x1b[31mred"):
        ip("-n", namespace, "link", "add", "link", "eth0", "name", name, "type", "macvlan")
    node.real(UID, process.pid)
    samples = list(node.collector(Visit).collect())
    assert devices(samples) == {"eth0", "net1"}
    assert values(samples)["rankscope_pod_nics_left_off",] == 3


def test_a_namespace_whose_last_process_has_gone_costs_nobody_else_anything(node, pod_process):
    process, *_ = pod_process
    gone = subprocess.Popen(["true"])
    gone.wait()
    node.real(OTHER, gone.pid)
    node.real(UID, process.pid)
    found = values(node.collector(Visit).collect())
    assert found["rankscope_pod_nic_mtu_bytes", JOB, UID, "eth0"] == 1400
    assert not [labels for labels in found if OTHER in labels]


def test_an_agent_that_may_not_enter_says_so_once_and_reads_counters(node):
    class Refused(Visit):
        def run(self) -> None:
            self.refusal = PermissionError(1, "Operation not permitted")
            os.close(self._namespace)

    node.made_up(UID, 4001, table("eth0"))
    found = values(node.collector(Refused).collect())
    assert found["rankscope_pod_nic_receive_bytes_total", JOB, UID, "eth0"] == 5
    assert not [labels for labels in found if labels[0] == metrics.MTU.name]


def test_a_visit_that_never_ends_costs_counters_nothing_and_no_second_thread(node):
    release = threading.Event()
    started = []

    class Hanging(Visit):
        def run(self) -> None:
            started.append(self)
            release.wait(60)
            self.links = (InsideLink("eth0", "veth", 9000, True, None),)
            os.close(self._namespace)

    node.made_up(UID, 4001, table("eth0"))
    node.made_up(OTHER, 4002, table("eth0"))
    collector = node.collector(Hanging)
    for look in range(3):
        node.now = look * ENTER_SECONDS
        found = values(collector.collect())
        assert found["rankscope_pod_nic_receive_bytes_total", JOB, OTHER, "eth0"] == 5
    assert len(started) == 1
    release.set()
    started[0].join(30)
    node.now = 3 * ENTER_SECONDS
    assert values(collector.collect())["rankscope_pod_nic_mtu_bytes", JOB, OTHER, "eth0"] == 9000


def test_a_process_that_took_the_number_of_one_that_ended_speaks_for_no_pod(node):
    node.made_up(UID, 4001, table("eth0"), cgroup=f"0::/kubepods/pod{OTHER}/{'d' * 64}\n")
    assert list(node.collector().collect()) == []


def test_properties_of_an_interface_that_has_gone_are_dropped_with_it(node):
    class Quick(Visit):
        def run(self) -> None:
            self.links = tuple(InsideLink(n, "veth", 1500, True, None) for n in self._names)
            os.close(self._namespace)

    node.made_up(UID, 4001, table("eth0", "net1"))
    collector = node.collector(Quick)
    assert devices(collector.collect()) == {"eth0", "net1"}
    (node.procfs / "4001/net/dev").write_text(table("eth0"))
    node.now = LOOK_SECONDS
    assert devices(collector.collect()) == {"eth0"}


def test_thousands_of_interfaces_of_one_pod_leave_others_their_own(node):
    node.made_up(UID, 4001, table(*(f"evil{i}" for i in range(3000))))
    node.made_up(OTHER, 4002, table("eth0", "net1"))
    samples = list(node.collector().collect())
    assert len([s for s in samples if s.labels[1:2] == (UID,)]) == 6 * MAX_PER_POD
    assert {s.labels[2] for s in samples if s.labels[1:2] == (OTHER,)} == {"eth0", "net1"}
    assert values(samples)["rankscope_pod_nics_left_off",] > 100


def test_places_are_dealt_out_in_turns_and_eth0_comes_first():
    counts = Traffic(0, 0, 0, 0, 0, 0)
    greedy = [
        PodNetwork(f"greedy-{i}", 1, dict.fromkeys((f"n{n}" for n in range(16)), counts), 0)
        for i in range(10)
    ]
    chosen = deal_out([*greedy, PodNetwork("modest", 1, {"eth0": counts, "net1": counts}, 0)])
    assert chosen["modest"] == ["eth0", "net1"]
    assert sum(map(len, chosen.values())) == MAX_PER_NODE


def test_eth0_comes_before_names_that_sort_before_it(node):
    names = [f"a{n}" for n in range(MAX_PER_POD)]
    node.made_up(UID, 4001, table(*names, "eth0"))
    assert "eth0" in devices(node.collector().collect())


def test_the_nodes_network_is_known_by_its_counters_though_interfaces_come_and_go():
    def counts(received: int) -> Traffic:
        return Traffic(received, 7, 0, 0, 0, 0)

    pod = PodNetwork(UID, 1, {"eth0": counts(50), "veth9": counts(1)}, 0)
    before, after = {"eth0": counts(40)}, {"eth0": counts(60), "veth9": counts(2)}
    assert is_nodes_own(pod, before, after)
    assert not is_nodes_own(pod, {"eth0": counts(51)}, after)
    assert not is_nodes_own(pod, before, {"eth0": counts(49), "veth9": counts(2)})
    assert not is_nodes_own(pod, before, {"eth0": counts(60)})
    assert not is_nodes_own(PodNetwork(UID, 1, {"net1": counts(1)}, 0), before, after)
    assert not is_nodes_own(PodNetwork(UID, 1, {}, 0), before, after)


def test_processes_of_a_container_alone_are_no_source(node):
    with pytest.raises(NoData, match="PID namespace other than the node's"):
        node.collector(whole_node=False).collect()


def test_capabilities_are_read_as_the_kernel_writes_them():
    status = "Name:\tagent\nCapPrm:\t00000000a80425fb\nCapEff:\t0000000000280000\n"
    assert effective_capabilities(status) == 1 << 21 | 1 << 19
    assert effective_capabilities("Name:\tagent\n") == 0


@pytest.mark.parametrize(
    ("capabilities", "may"),
    [(1 << 21 | 1 << 19, True), (1 << 21, False), (1 << 19, False), (0, False)],
)
def test_only_who_may_trace_and_administrate_enters(tmp_path, capabilities, may):
    own = tmp_path / "own"
    (own / "self").mkdir(parents=True)
    (own / "self" / "status").write_text(f"CapEff:\t{capabilities:016x}\n")
    (own / "self" / "ns").symlink_to("/proc/self/ns")
    with contextlib.suppress(FileExistsError):
        (own / "1").symlink_to("/proc/1")
    assert may_enter_networks(own / "..", Path("/sys"), own) is False or may
    if os.geteuid() == 0:
        assert may_enter_networks(Path("/proc"), Path("/sys"), own) is may


def test_fifteen_characters_name_a_kind_of_link():
    linked = {"IFLA_LINKINFO": {"IFLA_INFO_KIND": "fifteen-letters-and-more"}}
    assert inside_link(linked, "eth0", None).kind == "fifteen-letters"


def test_visits_of_one_reading_share_a_second(node, monkeypatch):
    now, given = [100.0], []

    class Timed(Visit):
        def start(self) -> None:
            os.close(self._namespace)

        def join(self, timeout=None) -> None:
            given.append(timeout)
            now[0] += 0.7

    monkeypatch.setattr(pod_netdev, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for number in range(3):
        node.made_up(f"{UID[:-1]}{number}", 4001 + number, table("eth0"))
    list(node.collector(Timed).collect())
    assert given == [pytest.approx(1.0), pytest.approx(0.3)]
