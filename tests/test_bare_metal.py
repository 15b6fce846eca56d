"""What is shipped for nodes without Kubernetes: the systemd unit and SLURM's prolog."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest

from rankscope_agent.collecting.registry import all_collectors
from rankscope_agent.settings.command_line import parse_config
from rankscope_analyzers import cli
from servers import require_server, require_tool

FOLDER = Path(__file__).parent.parent / "daemonset" / "bare-metal"
UNIT, PROLOG = FOLDER / "rankscope-agent.service", FOLDER / "slurm-task-prolog.sh"
MOUNT, WATCH = FOLDER / "run-rankscope.mount", FOLDER / "rankscope-watch.service"
MOST_SHARED_BYTES = 1 << 30
PATIENCE_SECONDS = 60


def settings(unit: Path = UNIT) -> dict[str, list[str]]:
    found = defaultdict(list)
    for line in unit.read_text().splitlines():
        key, mark, value = line.partition("=")
        if mark and not line.startswith("#"):
            found[key].append(value)
    return found


def test_the_unit_starts_an_agent_that_its_flags_and_directories_suit():
    found = settings()
    _, *flags = shlex.split(found["ExecStart"][0])
    variables = dict(line.split("=", 1) for line in found["Environment"])
    config = parse_config(flags, variables, tuple(all_collectors(None, None)), "1")
    assert (config.insecure_api, config.token_file) == (False, Path("/etc/rankscope/token"))
    shared = settings(MOUNT)
    assert [str(config.ring_dir)] == shared["Where"]
    assert found["Requires"] == [MOUNT.name]
    assert MOUNT.name in found["After"][0].split()
    assert config.state_dir == Path("/var/lib") / found["StateDirectory"][0]
    assert found["NoNewPrivileges"] == ["yes"]
    assert set(found["CapabilityBoundingSet"][0].split()) == {
        "CAP_SYS_PTRACE",
        "CAP_DAC_READ_SEARCH",
        "CAP_SYSLOG",
    }


MOST_EXPOSED = 3.5
"""Of 10, as systemd rates it. Most of what is left is the work itself: root's view of processes,
the network, netlink, GPUs' devices and the kernel's log."""


def analyzed(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [require_server("systemd-analyze"), "--no-pager", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.parametrize("shipped", [UNIT, WATCH], ids=lambda one: one.stem)
def test_systemd_understands_the_units(shipped, tmp_path):
    (program,) = re.findall(r"^ExecStart=(\S+)", shipped.read_text(), re.MULTILINE)
    there = tmp_path / Path(program).name
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    unit = tmp_path / shipped.name
    text = shipped.read_text().replace(f"ExecStart={program}", f"ExecStart={there}")
    mount = tmp_path / MOUNT.name
    mount.write_text(MOUNT.read_text())
    for added, complaint in (("", False), ("NoSuchSetting=yes\n", True)):
        unit.write_text(text.replace("[Install]", f"{added}[Install]"))
        done = verified(tmp_path, unit)
        assert (shipped.name in done.stderr) is complaint, done.stderr


def verified(folder: Path, unit: Path) -> subprocess.CompletedProcess[str]:
    return analyzed("verify", "--man=no", str(unit), SYSTEMD_UNIT_PATH=f"{folder}:")


def test_the_watchs_unit_asks_all_agents_with_their_token(tmp_path):
    """Words of a variable without braces are arguments of their own."""
    found = settings(WATCH)
    (command,) = re.findall("^ExecStart=(.*)", WATCH.read_text().replace("\\\n", ""), re.MULTILINE)
    agents = "--agent gpu-01 --agent gpu-02 "
    _, name, *flags = shlex.split(command.replace("$AGENTS", agents))
    parser = argparse.ArgumentParser()
    cli._arguments(name).add_arguments(parser)
    options = parser.parse_args(flags)
    assert options.agent == ["gpu-01:9877", "gpu-02:9877"]
    assert str(options.token_file) == "/etc/rankscope/token"
    assert Path(options.state).parent == Path("/var/lib") / found["StateDirectory"][0]
    assert found["CapabilityBoundingSet"] == [""]


def test_systemd_understands_the_shared_directory_by_the_name_of_its_unit(tmp_path):
    for name, complaint in ((MOUNT.name, False), ("rankscope.mount", True)):
        mount = tmp_path / name
        mount.write_text(MOUNT.read_text())
        done = verified(tmp_path, mount)
        assert (done.returncode != 0 or name in done.stderr) is complaint, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a tmpfs")
def test_users_fill_the_shared_directory_and_no_more(open_folder):
    """A size too large is refused at once, before a byte of memory is taken."""
    shared, options = open_folder / "rings", settings(MOUNT)["Options"][0]
    shared.mkdir()
    mounted = subprocess.run(
        [
            require_tool("mount"),
            "-t",
            settings(MOUNT)["Type"][0],
            "-o",
            options,
            "rankscope",
            shared,
        ],
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this root may not mount")
    try:
        assert shared.stat().st_mode & 0o7777 == 0o1777
        held = os.statvfs(shared)
        assert held.f_blocks * held.f_frsize == MOST_SHARED_BYTES
        assert held.f_files < 1 << 15
        subprocess.run(["sh", "-c", f": > {shared}/a.ring"], user=60001, check=True)
        for user, command, works in (
            (60002, f"rm -f {shared}/a.ring", False),
            (60002, f"fallocate -l {MOST_SHARED_BYTES + 1} {shared}/large", False),
            (60002, f"fallocate -l {4 << 20} {shared}/b.ring", True),
        ):
            done = subprocess.run(["sh", "-c", command], user=user, capture_output=True)
            assert (done.returncode == 0) is works, (command, done.stderr)
    finally:
        subprocess.run(["umount", str(shared)], check=True)


@pytest.mark.parametrize(("unit", "most"), [(UNIT, MOST_EXPOSED), (WATCH, 2.0)])
def test_the_units_expose_little(unit, most):
    done = analyzed("security", "--offline=true", f"--threshold={most * 10:.0f}", str(unit))
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("call", ["syslog", "adjtimex", "clock_adjtime"])
def test_the_unit_allows_the_calls_that_read_the_kernels_log_and_the_state_of_the_clock(call):
    """They are in none of the sets that it allows, and what is not allowed tells the agent nothing.

    glibc reads the clock's state by clock_adjtime since 2.31, by adjtimex before, as musl does.
    """
    allowed = settings()["SystemCallFilter"][0].split()
    sets = analyzed("syscall-filter", *(name for name in allowed if name.startswith("@")))
    assert call not in sets.stdout.split()
    assert call in allowed
    assert settings()["SystemCallErrorNumber"] == ["EPERM"]
    assert "ProtectClock" not in settings()  # it would take the clock's calls away again


def test_the_prolog_is_plain_shell(tmp_path):
    worse = tmp_path / PROLOG.name
    worse.write_text(PROLOG.read_text() + "cp $probe /tmp\n")
    root = PROLOG.with_name("slurm-prolog.sh")
    for script, clean in ((PROLOG, True), (root, True), (worse, False)):
        done = subprocess.run(
            [require_tool("shellcheck"), "--shell=sh", str(script)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert (done.returncode == 0) is clean, done.stdout


def prolog(**variables: str) -> str:
    done = subprocess.run(
        [str(PROLOG)],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
        env={"PATH": "/usr/bin:/bin", **variables},
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def probe(tmp_path):
    (tmp_path / "rankscope_probe.py").write_text("")
    return str(tmp_path)


def test_tasks_get_the_probe_before_what_they_have(probe):
    ring = "export RANKSCOPE_RING_DIR=/run/rankscope\n"
    assert prolog(RANKSCOPE_PROBE_DIR=probe) == f"export PYTHONPATH={probe}\n{ring}"
    kept = prolog(RANKSCOPE_PROBE_DIR=probe, PYTHONPATH="/a:/b")
    assert kept == f"export PYTHONPATH={probe}:/a:/b\n{ring}"
    assert "RING_DIR=/tmp/r\n" in prolog(RANKSCOPE_PROBE_DIR=probe, RANKSCOPE_RING_DIR="/tmp/r")


def test_tasks_start_without_a_probe_that_is_not_there_or_not_wanted(probe, tmp_path):
    assert prolog(RANKSCOPE_PROBE_DIR=f"{tmp_path}/none", PYTHONPATH="/a") == ""
    assert prolog(RANKSCOPE_PROBE_DIR=probe, RANKSCOPE_PROBE="0") == ""


@pytest.fixture
def open_folder():
    """A folder that every user may pass through."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes directories of other users")
def test_a_users_directory_of_rings_is_that_users_alone(open_folder):
    rings, own = open_folder / "rings", open_folder / "rings" / "60001"
    (open_folder / "rankscope_probe.py").write_text("")
    variables = {"PATH": os.environ["PATH"], "RANKSCOPE_RING_DIR": str(rings)}
    variables |= {"RANKSCOPE_PROBE_DIR": str(open_folder), "SLURM_JOB_UID": "60001"}
    told = {}
    try:
        for _ in range(2):  # of the user's second job, too
            script = PROLOG.with_name("slurm-prolog.sh")
            subprocess.run(["sh", str(script)], env=variables, check=True)
        assert (own.stat().st_uid, own.stat().st_mode & 0o777) == (60001, 0o700)
        for user in (60001, 60002):
            write = f"(: > {own}/{user}.ring) 2>/dev/null\n{PROLOG.read_text()}"
            told[user] = subprocess.run(
                ["sh", "-c", write], env=variables, user=user, stdout=subprocess.PIPE, check=True
            ).stdout.decode()
        assert [path.name for path in own.iterdir()] == ["60001.ring"]
    finally:
        subprocess.run(["umount", str(own)], capture_output=True, check=False)
    assert f"RING_DIR={own}\n" in told[60001]
    assert f"RING_DIR={rings}\n" in told[60002]


@pytest.mark.parametrize(("size", "mounted"), [(None, "512m"), ("64m", "64m")])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes directories of other users")
def test_a_users_directory_has_a_size_of_its_own_and_is_closed_without_one_too(
    open_folder, size, mounted
):
    """Where root may not mount, the directory is still the user's alone."""
    mount = open_folder / "bin" / "mount"
    mount.parent.mkdir()
    mount.write_text(f'#!/bin/sh\necho "$@" > {open_folder}/asked\nexit 1\n')
    mount.chmod(0o755)
    variables = {"PATH": f"{mount.parent}:{os.environ['PATH']}", "SLURM_JOB_UID": "60001"}
    variables |= {"RANKSCOPE_RING_DIR": f"{open_folder}/rings"}
    variables |= {} if size is None else {"RANKSCOPE_RING_SIZE": size}
    script = PROLOG.with_name("slurm-prolog.sh")
    subprocess.run(["sh", str(script)], env=variables, check=True)
    own = (open_folder / "rings" / "60001").stat()
    assert (own.st_uid, own.st_mode & 0o777) == (60001, 0o700)
    asked = (open_folder / "asked").read_text().split()
    assert asked[:2] == ["-t", "tmpfs"]
    assert {f"size={mounted}", "nr_inodes=4096", "mode=0700", "noexec"} <= {*asked[3].split(",")}
