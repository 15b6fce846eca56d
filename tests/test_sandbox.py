"""The agent under what its manifest asks for: read-only root, no capability, seccomp."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import sandbox
from running_agent import COMMAND, PATIENCE_SECONDS, running_agent

SANDBOX = Path(sandbox.__file__)
NOBODY = 65534
POD_NETWORKS = "kind, MTU, state and speed of interfaces inside pods"


def sandboxed(writable: Path, *kept: str, **more: object) -> list[str]:
    """Return the command that puts another into the sandbox; `more` are options of it."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0 or platform.machine() != "x86_64":
        pytest.skip("the sandbox takes root, unshare and x86-64")
    front = [unshare, "--mount", sys.executable, str(SANDBOX), f"--keep={','.join(kept)}"]
    front += [f"--writable={writable}", *(f"--{key}={value}" for key, value in more.items()), "--"]
    tried = subprocess.run([*front, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no mount namespace or filter can be had here: {tried.stderr[-200:]}")
    return front


@contextlib.contextmanager
def caged_agent(tmp_path: Path, *kept: str, more: Sequence[str] = ()):
    state = tmp_path / "state"
    state.mkdir()
    front = sandboxed(state, *kept)
    flags = (f"--path.state={state}", f"--path.system-logs={tmp_path}", "--path.kmsg=/none")
    with running_agent(tmp_path, *flags, *more, command=[*front, *COMMAND]) as agent:
        yield agent


def ready(agent) -> dict[str, str]:
    """Return what the agent does not see, by collector, once it is ready."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            lines = agent.get("/readyz").splitlines()
            return {line.split(": ")[1]: line for line in lines[1:]}
        time.sleep(0.1)
    raise AssertionError("the agent was never ready")


def status_of(process) -> dict[str, str]:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_the_agent_runs_without_any_capability_and_says_what_it_cannot_see(tmp_path):
    with caged_agent(tmp_path) as agent:
        unseen = ready(agent)
        status = status_of(agent.process)
        assert {status[name] for name in ("CapEff", "CapBnd", "CapPrm")} == {"0" * 16}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert "component tier-3" in unseen["kernel_log"]
        assert "component probe" in unseen["training"]
        assert "component nvml" in unseen["nvml"]
        health = json.loads(agent.get("/healthz"))
        assert health["status"] == "partial"
        assert set(unseen) <= {*health["collectors"], "api", "kubelet", "processes", POD_NETWORKS}
        seen = {name for name, state in health["collectors"].items() if state["success"]}
        assert {"host", "netdev"} <= seen
        assert "rankscope_build_info{" in agent.get("/metrics")
        assert not [
            path
            for path in tmp_path.iterdir()
            if path.name not in {"agent.log", "kmsg", "logs", "state"}
        ]
        assert "Traceback" not in agent.log.read_text()


def test_what_may_not_be_read_is_named_without_a_traceback(tmp_path):
    """As with wrong modes, and as SELinux denies: of another user, so that root may not either."""
    places = {
        "nccl_log": ("--path.pod-logs", tmp_path / "closed"),
        "training": ("--path.kubelet", tmp_path / "kubelet"),
        "nccl_inspector": ("--path.kubelet", tmp_path / "kubelet"),
        "rdma": ("--path.sysfs", tmp_path / "closed"),
    }
    for closed in ("closed", "kubelet/pods"):
        (tmp_path / closed).mkdir(parents=True)
        (tmp_path / closed).chmod(0o700)
        os.chown(tmp_path / closed, NOBODY, NOBODY)
    with caged_agent(
        tmp_path, more=[f"{flag}={place}" for flag, place in places.values()]
    ) as agent:
        unseen = ready(agent)
        for name, (_, place) in places.items():
            assert str(place) in unseen[name]
            assert "permission denied" in unseen[name]
            assert "component tier-2" in unseen[name]
            agent.logged(unseen[name].removeprefix(f"Not seen: {name}: ").rstrip("."))
        assert "Traceback" not in agent.log.read_text()


def test_the_kernel_log_is_seen_with_one_capability_more(tmp_path):
    with caged_agent(tmp_path, "syslog") as agent:
        assert "kernel_log" not in ready(agent)
        assert json.loads(agent.get("/healthz"))["collectors"]["kernel_log"]["success"]


def test_an_agent_that_could_not_write_its_state_would_go_on_as_well(tmp_path):
    front = sandboxed(tmp_path)
    done = subprocess.run(
        [*front, *COMMAND, "--once", "--path.state=/var/lib/rankscope-of-nobody"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, "PYTHONPATH": str(SANDBOX.parent.parent / "agent")},
    )
    assert done.returncode == 0
    assert "rankscope_build_info{" in done.stdout


def test_the_sandbox_really_refuses_what_it_claims_to(tmp_path):
    front = sandboxed(tmp_path)
    tries = {
        "touch /etc/rankscope-was-here": "Read-only file system",
        "unshare --mount true": "Operation not permitted",
        "mount -t tmpfs none /mnt": "permission denied",
        "chroot / true": "Operation not permitted",
        "dmesg": "Operation not permitted",
        "cat /etc/shadow-of-nobody": "No such file",
    }
    for command, complaint in tries.items():
        done = subprocess.run(
            [*front, "sh", "-c", command], capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert complaint in done.stderr
    assert subprocess.run([*front, "touch", tmp_path / "x"], check=False).returncode == 0
    assert not (tmp_path / "x").exists()  # it went into the sandbox's own tmpfs


def verdict(number: int, first: int = 0, arch: int = sandbox.X86_64, kept=()) -> int:
    """Run the filter on a system call, as the kernel would."""
    data = {0: number, 4: arch, 16: first}
    code = list(struct.iter_unpack("=HBBI", sandbox.program(set(kept))))
    at, loaded = 0, 0
    tests = {
        sandbox.JUMP_EQUAL: lambda value: loaded == value,
        sandbox.JUMP_GREATER: lambda value: loaded > value,
        sandbox.JUMP_SET: lambda value: bool(loaded & value),
    }
    while True:
        kind, on_true, on_false, value = code[at]
        at += 1
        if kind == sandbox.RETURN:
            return value
        if kind == sandbox.LOAD:
            loaded = data[value]
        else:
            at += on_true if tests[kind](value) else on_false


def test_the_filter_refuses_blocked_calls_and_no_others():
    refused = sandbox.ERRNO | errno.EPERM
    blocked = set(sandbox.BLOCKED.values())
    assert len(blocked) == len(sandbox.BLOCKED)
    for number in range(sandbox.LAST_KNOWN + 1):
        expected = refused if number in blocked else sandbox.ALLOW
        assert verdict(number) == (sandbox.ERRNO | errno.ENOSYS if number == 435 else expected)
    assert verdict(56, first=0x00010F00) == sandbox.ALLOW  # a thread
    assert verdict(56, first=0x10000000) == refused  # a user namespace
    assert verdict(sandbox.LAST_KNOWN + 1) == sandbox.ERRNO | errno.ENOSYS
    assert verdict(0, arch=0x40000003) == sandbox.KILL
    assert verdict(103, kept=("syslog",)) == sandbox.ALLOW
