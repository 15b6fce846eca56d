"""The last that is still taken and the first that is not, of what is read of all processes."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope_agent.sources.pods.command_line import parse_command
from rankscope_agent.sources.pods.lock_holders import LockHolders
from rankscope_agent.sources.pods.membership import number
from rankscope_agent.sources.pods.process_scan import ProcessScanner
from rankscope_agent.sources.pods.processes import parse_environ
from standing_clock import clock

__all__ = ["clock"]


RINGS = Path("/run/rankscope")


def test_the_command_line_keeps_256_characters_of_an_argument():
    assert parse_command(b"a" * 300) == ("a" * 256,)


def test_a_value_of_a_process_keeps_256_characters():
    assert parse_environ(b"NCCL_X=" + b"a" * 300) == {"NCCL_X": "a" * 256}


@pytest.mark.parametrize(("text", "value"), [("1048575", 1048575), ("1048576", None)])
def test_a_rank_is_below_2_to_the_20(text, value):
    assert number(text) == value


def test_65536_processes_are_looked_at(tmp_path, monkeypatch):
    class Listed:
        def __enter__(self):
            return (SimpleNamespace(name=str(pid), inode=lambda: 1) for pid in range(1, 65538))

        def __exit__(self, *error):
            return None

    scanner = ProcessScanner(tmp_path, lambda placement: {}, RINGS)
    monkeypatch.setattr(os, "scandir", lambda root: Listed())
    assert [pid for pid, _ in scanner._processes()] == list(range(1, 65537))


def process(root, environ, command=b""):
    folder = root / "7"
    folder.mkdir(parents=True)
    (folder / "environ").write_bytes(environ)
    (folder / "cgroup").write_text("0::/user.slice\n")
    (folder / "cmdline").write_bytes(command)
    return ProcessScanner(root, lambda placement: {}, RINGS).scan().ranks


RANK = b"RANK=1\0WORLD_SIZE=2\0LOCAL_RANK=1\0"


@pytest.mark.parametrize(("size", "world"), [(1 << 18, 24), ((1 << 18) + 1, 2)])
def test_256_kibibytes_are_read_of_an_environment(tmp_path, size, world):
    environ = b"\0RANK=1\0LOCAL_RANK=1\0WORLD_SIZE=24"
    (found,) = process(tmp_path, b"X=" + environ.rjust(size - 2, b"a"))
    assert found.identity.world_size == world


def test_16_kibibytes_are_read_of_a_command_line(tmp_path):
    arguments = b"\0".join([b"a" * 127] * 200)
    (found,) = process(tmp_path, RANK, arguments)
    assert len(found.command) == (16 << 10) // 128


def test_64_new_command_lines_are_read_in_a_scan_and_the_others_later(tmp_path):
    for pid in range(1, 67):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "environ").write_bytes(b"RANK=%d\0WORLD_SIZE=80\0LOCAL_RANK=%d\0" % (pid, pid))
        (folder / "cgroup").write_text("0::/user.slice\n")
        (folder / "cmdline").write_bytes(b"python\0%d" % pid)
    scanner = ProcessScanner(tmp_path, lambda placement: {}, RINGS)
    for read in (64, 66):
        ranks = scanner.scan().ranks
        assert [one.command for one in ranks if one.command] == [
            ("python", str(one.pid)) for one in sorted(ranks, key=lambda one: one.pid)[:read]
        ]


def test_processes_without_a_command_line_keep_no_other_from_being_read(tmp_path):
    """A process may clear its own."""
    for pid in range(1, 67):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "environ").write_bytes(b"RANK=%d\0WORLD_SIZE=80\0LOCAL_RANK=%d\0" % (pid, pid))
        (folder / "cgroup").write_text("0::/user.slice\n")
        (folder / "cmdline").write_bytes(b"python\0" if pid == 66 else b"")
    ranks = ProcessScanner(tmp_path, lambda placement: {}, RINGS).scan().ranks
    assert [one.command for one in ranks if one.command] == [("python",)]


def test_locks_are_looked_at_every_five_seconds(tmp_path, clock):
    locks = tmp_path / "locks"
    locks.write_text("1: FLOCK  ADVISORY  WRITE 7 00:1b:263050 0 EOF\n")
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Uid:\t1000\t1000\t1000\t1000\n")
    holders = LockHolders(tmp_path, clock)
    ring = os.makedev(0, 27), 263050
    for later, known in ((0.0, True), (4.9, True), (0.1, False)):
        clock.now += later
        assert (holders.of(ring) is not None) is known
        locks.write_text("")
