"""Kills and crashes in the kernel's log belong to the pods of the processes that they hit."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kernel_log_nodes import NOW, POD_A, POD_B, UPTIME, XID_79, Log, node, opened, page
from kernel_text import xid
from rankscope_agent.sources.kernel_log.processes import pod_of_process
from rankscope_agent.sources.sealed_state import unsealed

__all__ = ["node"]

MAX_PODS = 32


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
    state = json.loads(unsealed(node.state_file.read_bytes()))
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
