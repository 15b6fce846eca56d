"""What an agent that lacks something says about it in log and /readyz; copying the probe."""

from __future__ import annotations

import contextlib
import stat
import subprocess
import sys
import time

import pytest

from rankscope_agent.contract.requirements import Identity, identity, remedy_text
from rankscope_agent.contract.sources import BY_COLLECTOR_OR_PART
from rankscope_agent.probe_copy import ProbeCopyError, copy_probe
from running_agent import COMMAND, PATIENCE_SECONDS, agent_environment, running_agent


def test_a_missing_mount_is_named_with_the_component_that_brings_it(tmp_path):
    flags = (f"--path.sysfs={tmp_path}/none", "--kubernetes.api=http://127.0.0.1:9")
    with running_agent(tmp_path, *flags) as agent:
        lines = ready(agent).splitlines()
        assert lines[0] == "Every collector has had its first run."
        unseen = {line.split(": ")[1]: line for line in lines[1:]}
        assert "component probe" in unseen["training"]
        assert f"{tmp_path}/none" in unseen["rdma"]
        assert "hostPath /sys" in unseen["rdma"]
        assert "pod-resources" in unseen["kubelet"]
        assert unseen["api"].endswith("(needs a role that lists and watches pods: base).")
        log = agent.logged("collector rdma: no data: ")
        assert log.count("collector rdma: no data: ") == 1
        assert BY_COLLECTOR_OR_PART["rdma"].needs in log


def ready(agent) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # 503 before the first runs have ended
            return agent.get("/readyz")
        time.sleep(0.1)
    raise AssertionError("the agent was never ready")


DENIED = "no data: /var/log/pods: permission denied"


@pytest.mark.parametrize(
    ("agent", "ending"),
    [
        (
            Identity(0, "container_t"),
            "; SELinux confines the agent as container_t: component selinux)",
        ),
        (Identity(0, "spc_t"), "CAP_DAC_READ_SEARCH: component tier-2)"),
        (Identity(0, "control_t"), "CAP_DAC_READ_SEARCH: component tier-2)"),
        (Identity(0, ""), "CAP_DAC_READ_SEARCH: component tier-2)"),
        (Identity(65532, ""), "require root, but the agent runs as user 65532: base)"),
    ],
)
def test_what_is_denied_is_named_with_who_denies_it(agent, ending):
    assert remedy_text("nccl_log", DENIED, agent).endswith(ending)
    assert remedy_text("nccl_log", "no data: there is no /var/log/pods", agent).endswith(
        "/pods: base)"
    )
    assert remedy_text("something-else", DENIED, agent) == ""


@pytest.mark.parametrize(
    ("label", "selinux"),
    [
        ("system_u:system_r:container_t:s0:c214,c555\0", "container_t"),
        ("unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023\0", "unconfined_t"),
        ("cri-containerd.apparmor.d (enforce)\n", ""),
        ("unconfined\n", ""),
        ("", ""),
    ],
)
def test_selinux_is_known_by_the_label_of_a_process(tmp_path, label, selinux):
    (tmp_path / "attr").mkdir()
    (tmp_path / "attr" / "current").write_text(label)
    assert identity(tmp_path).selinux == selinux
    assert identity(tmp_path / "none").selinux == ""


def test_a_directory_that_is_no_sysfs_is_said_to_be_none(tmp_path):
    with running_agent(tmp_path, f"--path.sysfs={tmp_path}/logs") as agent:
        assert f"Not seen: rdma: no data: {tmp_path}/logs is not a sysfs" in ready(agent)


def test_an_init_container_copies_a_probe_that_any_user_can_import(tmp_path):
    target = tmp_path / "probe"
    done = subprocess.run(
        [*COMMAND, f"--copy-probe={target}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env=agent_environment(),
        umask=0o077,
    )
    assert done.returncode == 0, done.stderr
    assert "what an image sets itself is not kept" in done.stderr
    files = [path for path in target.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in files)
    folders = [target, *(path for path in target.rglob("*") if path.is_dir())]
    assert [stat.S_IMODE(path.stat().st_mode) for path in folders] == [0o755, 0o755]
    show = "from importlib.metadata import entry_points as e; print(*e(group='torch.backends'))"
    found = subprocess.run(
        [sys.executable, "-c", show],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
        env=agent_environment(PYTHONPATH=str(target)),
    )
    assert "rankscope_probe:_autoload" in found.stdout


def test_a_probe_that_cannot_be_copied_is_said_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [*COMMAND, f"--copy-probe={tmp_path}/file"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env=agent_environment(),
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"rankscope-agent: cannot write {tmp_path}/file: ")
    with pytest.raises(ProbeCopyError, match="no probe next to"):
        copy_probe(tmp_path, tmp_path / "nowhere")
