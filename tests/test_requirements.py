"""What an agent that lacks something says about it in log and /readyz; copying the probe."""

from __future__ import annotations

import contextlib
import stat
import subprocess
import sys
import time

import pytest

from rankscope_agent.probe_copy import ProbeCopyError, copy_probe
from rankscope_agent.requirements import COMPONENTS, brings
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
        assert unseen["api"].endswith("(takes a role that lists and watches pods: base).")
        log = agent.log.read_text()
        assert log.count("collector rdma: no data: ") == 1
        assert COMPONENTS["rdma"] in log


def ready(agent) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # 503 before the first runs have ended
            return agent.get("/readyz")
        time.sleep(0.1)
    raise AssertionError("the agent was never ready")


def test_what_is_denied_may_be_denied_by_selinux():
    assert "component selinux" in brings("nccl_log", "OSError: [Errno 13] Permission denied: '/a'")
    assert "selinux" not in brings("nccl_log", "no data: there is no /var/log/pods")
    assert brings("something-else", "Permission denied") == ""


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
    files = [path for path in target.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in files)
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
    assert done.stderr.startswith(f"rankscope-agent: {tmp_path}/file cannot be written: ")
    with pytest.raises(ProbeCopyError, match="no probe beside"):
        copy_probe(tmp_path, tmp_path / "nowhere")
