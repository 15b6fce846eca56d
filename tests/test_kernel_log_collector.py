"""The collector of the kernel's log: counts that survive restarts, and reboots told apart."""

from __future__ import annotations

import dataclasses
import json
import shutil
import struct
from pathlib import Path

import pytest

from kernel_text import xid
from rankscope_agent.contract.kernel.log import read
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.kernel_log.collector import KernelLogCollector, Node
from rankscope_agent.sources.kernel_log.processes import pod_of_process
from rankscope_agent.sources.kernel_log.reboots import ended
from rankscope_agent.sources.kernel_log.records import Batch, Record
from rankscope_agent.sources.kernel_log.tally import Tally, from_json

MAX_PODS = 32
MAX_SUBJECTS = 64

NOW, UPTIME = 1_800_000_000.0, 5_000.0
UUID = "GPU-00000000-1111-2222-3333-444444444444"
XID_79 = ("rankscope_gpu_xid_errors_total", "0", UUID, "0000:3b:00", "79", "fatal", "reboot_node")


class Log:
    """A source over lists of messages: each is a record, a second after the one before."""

    def __init__(self, *messages: str, name: str = "kmsg") -> None:
        self.messages = list(messages)
        self.name = name
        self.lost = 0
        self.fails = False
        self.closed = False

    def read(self, cursor):
        if self.fails:
            raise OSError(5, "Input/output error")
        first = cursor.get("sequence", -1) + 1
        records = [
            Record(n, float(n), text.encode()) for n, text in enumerate(self.messages) if n >= first
        ]
        return Batch(records, {"sequence": len(self.messages) - 1}, self.lost)

    def close(self):
        self.closed = True


@pytest.fixture
def node(tmp_path) -> Node:
    boot = tmp_path / "proc" / "sys" / "kernel" / "random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("11111111-2222-3333-4444-555555555555\n")
    card = tmp_path / "proc" / "driver" / "nvidia" / "gpus" / "0000:3b:00.0"
    card.mkdir(parents=True)
    (card / "information").write_text(f"Model: \t\t H100\nIRQ:   \t\t 1\nGPU UUID: \t {UUID}\n")
    (tmp_path / "state").mkdir()
    clock = iter(range(10**6))
    return Node(
        tmp_path / "proc",
        tmp_path / "pstore",
        tmp_path / "wtmp",
        tmp_path / "state" / "kernel_log.json",
        lambda: NOW + 60 * next(clock),
        lambda: UPTIME,
    )


def page(collector: KernelLogCollector) -> dict[tuple[str, ...], float]:
    return {(s.metric.name, *s.labels): s.value for s in collector.collect()}


def opened(node: Node, *sources: Log) -> KernelLogCollector:
    return KernelLogCollector([lambda one=one: one for one in sources], node)


def test_xids_are_counted_by_gpu_code_and_severity_with_the_time_of_the_last(node):
    log = Log(xid(45), xid(45), xid(79), "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
    found = page(opened(node, log))
    gpu = ("0", UUID, "0000:3b:00")
    assert found[("rankscope_gpu_xid_errors_total", *gpu, "45", "info", "none")] == 2
    assert found[("rankscope_gpu_xid_errors_total", *gpu, "79", "fatal", "reboot_node")] == 1
    last = found[("rankscope_gpu_xid_last_timestamp_seconds", *gpu, "79", "fatal", "reboot_node")]
    assert last == pytest.approx(NOW - UPTIME + 2.0, abs=600)
    assert found[("rankscope_gpu_fallen_off_bus_total", *gpu)] == 1
    assert found[("rankscope_gpu_init_failures_total", *gpu)] == 0
    assert found["rankscope_kernel_log_info", "kmsg"] == 1


def test_kinds_of_events_are_counted_from_zero(node):
    quiet = page(opened(node, Log()))
    assert quiet["rankscope_kernel_events_total", "hung_task"] == 0
    assert quiet["rankscope_kernel_records_lost_total",] == 0
    assert not [key for key in quiet if key[0] == "rankscope_gpu_xid_errors_total"]


def test_other_subjects_have_counters_of_their_own(node):
    cgroup = "/kubepods/burstable/pod01234567-89ab-cdef-0123-456789abcdef/x"
    found = page(
        opened(
            node,
            Log(
                f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg={cgroup},"
                f"task_memcg={cgroup},task=trainer,pid=71,uid=0",
                "Memory cgroup out of memory: Killed process 71 (trainer) total-vm:1kB",
                "Out of memory: Killed process 72 (trainer) total-vm:1kB",
                "mlx5_core 0000:49:00.0: wait_func:1:(pid 4): x timeout. Will cause a leak of a",
                "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (x)",
                "Buffer I/O error on dev nvme0n1p1, logical block 1",
                "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
                "EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 ()",
            ),
        )
    )
    uid = "01234567-89ab-cdef-0123-456789abcdef"
    assert found["rankscope_kernel_oom_kills_total", "cgroup", uid] == 1
    assert found["rankscope_kernel_oom_kills_total", "node", ""] == 1
    assert found["rankscope_nic_command_timeouts_total", "0000:49:00.0"] == 1
    assert found["rankscope_pcie_aer_events_total", "0000:01:00", "info"] == 1
    assert found["rankscope_kernel_disk_errors_total", "nvme0"] == 1
    assert found["rankscope_nvswitch_sxid_errors_total", "0000:07:00", "20034", "fatal"] == 1
    assert found["rankscope_kernel_events_total", "memory_corrected"] == 4


def oom(uid: str, pid: int, form: str = "cgroupfs", scope: str = "cgroup") -> list[str]:
    """Return the lines of a kill in a pod, as kernels print them for either driver of cgroups."""
    low = uid.replace("-", "_")
    slices = "/kubepods.slice/kubepods-burstable.slice"
    pod = {
        "cgroupfs": f"/kubepods/burstable/pod{uid}",
        "systemd": f"{slices}/kubepods-burstable-pod{low}.slice",
        "nested": f"/../../kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{low}.slice",
        "4.x": f"/kubepods/pod{uid}",
    }[form]
    victim = f"{pod}/cri-containerd-{'a' * 64}.scope"
    killed = f"Killed process {pid} (pt_data_worker) total-vm:1kB, anon-rss:1kB"
    if form == "4.x":
        limit = f"Task in {victim} killed as a result of limit of {pod}"
        old = f"Memory cgroup out of memory: Kill process {pid} (python) score 1 or sacrifice child"
        return [limit, old, killed]
    task = f"task_memcg={victim},task=pt_data_worker,pid={pid},uid=0"
    where = "nodemask=(null),cpuset=cri-containerd-aa.scope,mems_allowed=0-1"
    if scope == "node":
        return [
            f"oom-kill:constraint=CONSTRAINT_NONE,{where},global_oom,{task}",
            f"Out of memory: {killed}",
        ]
    return [
        f"oom-kill:constraint=CONSTRAINT_MEMCG,{where},oom_memcg={pod},{task}",
        f"Memory cgroup out of memory: {killed}",
    ]


POD_A, POD_B = (f"0f9d2c1e-7a51-4b7e-9a35-{n:012d}" for n in (1, 2))
LAST = "rankscope_kernel_pod_last_event_timestamp_seconds"


@pytest.mark.parametrize("form", ["cgroupfs", "systemd", "nested", "4.x"])
def test_a_kill_belongs_to_its_pod_whatever_the_form_of_the_cgroup(node, form):
    found = page(opened(node, Log(*oom(POD_A, 71, form))))
    assert found["rankscope_kernel_oom_kills_total", "cgroup", POD_A] == 1
    assert found["rankscope_kernel_events_total", "oom_kill"] == 1
    assert found[LAST, "oom_kill", "cgroup", POD_A] == pytest.approx(NOW - UPTIME + 1, abs=600)


def test_whose_limit_it_was_and_whose_process_are_told_apart(node):
    found = page(
        opened(node, Log(*oom(POD_A, 71), *oom(POD_B, 72, scope="node"), *oom(POD_A, 73, "4.x")))
    )
    assert found["rankscope_kernel_oom_kills_total", "cgroup", POD_A] == 2
    assert found["rankscope_kernel_oom_kills_total", "node", POD_B] == 1
    assert (LAST, "oom_kill", "node", POD_B) in found


def test_the_limit_of_all_pods_together_leaves_a_kill_to_the_pod_of_the_process(node):
    line, killed = oom(POD_A, 71)
    line = line.replace(f"oom_memcg=/kubepods/burstable/pod{POD_A}", "oom_memcg=/kubepods")
    found = page(opened(node, Log(line, killed)))
    assert found["rankscope_kernel_oom_kills_total", "cgroup", POD_A] == 1


def test_no_container_passes_its_kills_on_by_the_names_of_its_groups_or_processes(node):
    """Names may hold anything but a slash; groups below a container's own may be called pods."""
    line, killed = oom(POD_A, 71)
    fake = f"x,oom_memcg=/kubepods/pod{POD_B},task_memcg=/kubepods/pod{POD_B},task=y,pid=71"
    lines = [
        line.replace("cpuset=cri-containerd-aa.scope", f"cpuset=x,oom_memcg=pod{POD_B}"),
        line.replace(".scope,task=", f".scope/{fake},task="),
        line.replace("task=pt_data_worker", "task=a,oom_memcg=/,p"),
    ]
    for number, text in enumerate(lines):
        found = page(opened(node, Log(text, killed, *["quiet"] * number)))
        node.state_file.unlink()
        uids = {key[-1] for key in found if key[0] == "rankscope_kernel_oom_kills_total"}
        assert uids == {POD_A}, text


def test_a_crash_belongs_to_the_pod_of_its_process_for_as_long_as_that_is_known(node):
    crash = "python[{}]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so[7f+1]"
    uptime = dataclasses.replace(
        node, uptime=lambda: 5.0, pod_of=lambda pid: POD_A if pid == 77 else ""
    )
    found = page(opened(uptime, Log(crash.format(77), crash.format(78))))
    assert {key[3] for key in found if key[0] == LAST} == {POD_A, ""}
    assert found["rankscope_kernel_events_total", "user_fault"] == 2
    node.state_file.unlink()
    late = dataclasses.replace(uptime, uptime=lambda: 5000.0)
    found = page(opened(late, Log(crash.format(77))))
    assert {key[3] for key in found if key[0] == LAST} == {""}, "the number may be another's by now"


def test_of_more_pods_than_are_kept_the_one_hit_longest_ago_is_forgotten(node):
    uids = [f"0f9d2c1e-7a51-4b7e-9a35-{n:012d}" for n in range(MAX_PODS + 3)]
    lines = [line for n, uid in enumerate(uids) for line in oom(uid, 100 + n)]
    found = page(opened(node, Log(*lines)))
    kept = {key[-1] for key in found if key[0] == "rankscope_kernel_oom_kills_total"}
    assert kept == set(uids[3:])
    assert {key[-1] for key in found if key[0] == LAST} == kept


def test_a_state_from_before_pods_had_times_loses_their_counts_alone(node):
    page(opened(node, Log(xid(79), *oom(POD_A, 71))))
    state = json.loads(node.state_file.read_text())
    state["tally"]["version"] = 2
    del state["tally"]["pod_times"]
    node.state_file.write_text(json.dumps(state))
    found = page(opened(node, Log(xid(79), *oom(POD_A, 71))))
    assert found[XID_79] == 1
    assert ("rankscope_kernel_oom_kills_total", "cgroup", POD_A) not in found


def test_a_process_is_in_the_pod_that_its_cgroup_names_or_where_it_was_seen_last(tmp_path):
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "cgroup").write_text(f"0::/kubepods/pod{POD_A}/{'c' * 64}\n")
    seen = {78: POD_B}

    def pod_of(pid, whole_node=True):
        return pod_of_process(tmp_path, pid, lambda pid: seen.get(pid, ""), whole_node=whole_node)

    assert [pod_of(pid) for pid in (77, 78, 79, None)] == [POD_A, POD_B, "", ""]
    assert pod_of(77, whole_node=False) == "", "of another PID namespace the numbers say nothing"


def test_counts_go_on_after_a_restart_and_nothing_is_counted_twice(node):
    page(opened(node, Log(xid(79))))
    found = page(opened(node, Log(xid(79), xid(79))))
    assert found[XID_79] == 2


def test_a_gpu_that_the_driver_no_longer_lists_keeps_its_name(node):
    page(opened(node, Log()))
    (node.procfs / "driver" / "nvidia" / "gpus" / "0000:3b:00.0" / "information").write_text(
        "GPU UUID: \t GPU-????????-????-????-????-????????????\n"
    )
    assert page(opened(node, Log(xid(79))))[XID_79] == 1
    shutil.rmtree(node.procfs / "driver")
    assert page(opened(node, Log(xid(79), xid(79))))[XID_79] == 2


def test_another_source_does_not_count_the_same_records_again(node):
    page(opened(node, Log(xid(79), xid(79))))
    found = page(opened(node, Log(xid(79), xid(79), xid(79), name="syslog")))
    assert found[XID_79] == 3


def test_after_a_boot_the_log_is_read_from_its_beginning(node):
    page(opened(node, Log(xid(79))))
    boot_id = node.procfs / "sys" / "kernel" / "random" / "boot_id"
    boot_id.write_text("99999999-2222-3333-4444-555555555555\n")
    found = page(opened(node, Log(xid(79))))
    assert found[XID_79] == 2
    assert found["rankscope_node_reboots_total", "unknown"] == 1
    again = page(opened(node, Log(xid(79))))
    assert again["rankscope_node_reboots_total", "unknown"] == 1


def test_lost_records_are_counted(node):
    log = Log(xid(79))
    log.lost = 36
    assert page(opened(node, log))["rankscope_kernel_records_lost_total",] == 36


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"boot": 1}', '{"tally": {"version": 9}}', "\x00", '{"boot":' * 20_000]
)
def test_a_damaged_state_is_left_behind(node, text, caplog):
    node.state_file.write_text(text)
    found = page(opened(node, Log(xid(79))))
    assert found[XID_79] == 1
    assert "cannot continue" in caplog.text
    assert json.loads(node.state_file.read_text())["boot"]


def test_a_node_without_a_log_says_so_and_why(node):
    def refused():
        raise OSError(1, "Operation not permitted")

    with pytest.raises(NoData, match="Operation not permitted"):
        list(KernelLogCollector([refused, refused], node).collect())


def test_the_next_way_is_taken_where_the_best_is_closed(node):
    def refused():
        raise OSError(1, "Operation not permitted")

    log = Log(xid(79), name="journal")
    found = page(KernelLogCollector([refused, lambda: log], node))
    assert found["rankscope_kernel_log_info", "journal"] == 1


def test_a_source_that_breaks_is_closed_and_opened_again(node):
    broken, whole = Log(), Log(xid(79))
    broken.fails = True
    sources = [broken, whole]
    collector = KernelLogCollector([lambda: sources.pop(0)], node)
    with pytest.raises(OSError, match="Input/output"):
        list(collector.collect())
    assert broken.closed
    assert page(collector)["rankscope_kernel_log_info", "kmsg"] == 1


def test_a_state_that_cannot_be_written_costs_nothing_but_a_warning(node, caplog):
    lost = dataclasses.replace(node, state_file=Path("/proc/nowhere/kernel_log.json"))
    assert page(opened(lost, Log()))
    assert "cannot write" in caplog.text


def test_one_look_goes_on_from_a_state_and_leaves_it_alone(node):
    page(opened(node, Log(xid(79))))
    kept = node.state_file.read_bytes()
    look = dataclasses.replace(node, keeps_state=False)
    found = page(opened(look, Log(xid(79), xid(79))))
    assert (
        found[
            (
                "rankscope_gpu_xid_errors_total",
                "0",
                UUID,
                "0000:3b:00",
                "79",
                "fatal",
                "reboot_node",
            )
        ]
        == 2
    )
    assert node.state_file.read_bytes() == kept


def test_text_of_the_log_never_becomes_a_label(node):
    evil = '"},{x="<b>'
    log = Log(
        f"NVRM: Xid (PCI:{evil}): 79, x",
        "NVRM: Xid (PCI:0000:3b:00): 9999, x",
        f"Buffer I/O error on dev {evil}, logical block 1",
        f"Memory cgroup out of memory: Killed process 71 ({evil}) total-vm:1kB",
    )
    labels = {label for key in page(opened(node, log)) for label in key[1:]}
    assert not [label for label in labels if set(label) & set('"{}<>= ')]
    assert "other" in labels


def test_devices_beyond_the_limit_share_a_name():
    tally = Tally()
    for number in range(2 * MAX_SUBJECTS):
        event = read(xid(79, pci=f"{number:04x}:3b:00").encode())
        tally.add(event, NOW)
    assert len(tally.xids) == MAX_SUBJECTS + 1
    assert tally.xids["other", "79", "fatal", "reboot_node"] == MAX_SUBJECTS
    assert from_json(json.loads(json.dumps(tally.to_json()))).xids == tally.xids


def utmp(kind: int, user: bytes, seconds: int) -> bytes:
    head = struct.pack("<hxxi32s4s32s256s", kind, 0, b"~", b"~~", user, b"6.1")
    return head.ljust(340, b"\0") + struct.pack("<ii", seconds, 0) + b"\0" * 36


def test_how_a_boot_ended_is_told_by_its_dump_and_its_shutdown_record(tmp_path):
    pstore, wtmp = tmp_path / "pstore", tmp_path / "wtmp"
    assert ended(pstore, wtmp, 1000.0) == "unknown"
    wtmp.write_bytes(utmp(2, b"reboot", 100) + utmp(1, b"shutdown", 900))
    assert ended(pstore, wtmp, 1000.0) == "unexpected"
    wtmp.write_bytes(wtmp.read_bytes() + utmp(1, b"shutdown", 1003) + utmp(2, b"reboot", 1100))
    assert ended(pstore, wtmp, 1000.0) == "clean"
    pstore.mkdir()
    (pstore / "console-ramoops-0").touch()
    assert ended(pstore, wtmp, 1000.0) == "clean"
    (pstore / "dmesg-efi-1").touch()
    assert ended(pstore, wtmp, 1000.0) == "crashed"


@pytest.mark.parametrize("data", [b"", b"x", b"\xff" * 1000])
def test_a_garbled_record_of_shutdowns_raises_nothing(tmp_path, data):
    wtmp = tmp_path / "wtmp"
    wtmp.write_bytes(data)
    assert ended(tmp_path, wtmp, 1000.0) in {"unknown", "unexpected"}


CRASH = "python[77]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so[7f+1]"
DRIFTS = [-100.0, 0.0, 100.0]


@pytest.mark.parametrize("ahead", DRIFTS)
def test_a_record_that_is_read_as_it_is_written_has_the_time_of_the_reading(node, ahead):
    """The clock of records runs apart from the node's, minutes within a month or two."""
    now = {"uptime": UPTIME}
    sought: list[int | None] = []
    moving = dataclasses.replace(
        node,
        clock=lambda: NOW + now["uptime"],
        uptime=lambda: now["uptime"],
        pod_of=lambda pid: sought.append(pid) or POD_A,
    )
    records = [Record(0, 0.0, b"quiet")]
    log = Log()
    log.read = lambda cursor: Batch(records, {}, 0, complete=True)
    collector = opened(moving, log)
    page(collector)
    for later, text in ((60.0, "quiet"), (90.0, xid(79)), (91.0, CRASH)):
        now["uptime"] = UPTIME + later
        records[:] = [Record(1, UPTIME + later + ahead - 0.5, text.encode())]
        found = page(collector)
    (last,) = (value for key, value in found.items() if "xid_last" in key[0])
    assert last == pytest.approx(NOW + UPTIME + 90.0 - 0.5, abs=31.0)
    assert sought == [77], "its process was still there"


def test_a_backlog_is_as_old_as_it_says_and_never_from_the_future(node):
    log = Log()
    records = [Record(0, 100.0, xid(45).encode()), Record(1, UPTIME + 50.0, xid(79).encode())]
    log.read = lambda cursor: Batch(records, {}, 0, complete=True)
    found = page(opened(dataclasses.replace(node, clock=lambda: NOW), log))
    stamps = {key[4]: value for key, value in found.items() if "xid_last" in key[0]}
    assert stamps == {"45": NOW - UPTIME + 100.0, "79": NOW}


def test_a_reading_that_left_records_says_nothing_about_the_age_of_the_next(node):
    now = {"uptime": UPTIME}
    moving = dataclasses.replace(
        node, clock=lambda: NOW + now["uptime"], uptime=lambda: now["uptime"]
    )
    log, records = Log(), [Record(0, 0.0, b"quiet")]
    log.read = lambda cursor: Batch(records, {}, 0, complete=False)
    collector = opened(moving, log)
    page(collector)
    now["uptime"] += 5.0
    records[:] = [Record(1, 1_000.0, xid(79).encode())]
    (last,) = (value for key, value in page(collector).items() if "xid_last" in key[0])
    assert last == NOW + 1_000.0
