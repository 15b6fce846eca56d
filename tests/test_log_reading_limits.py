"""How many logs are read at once, in which pieces, and how much of one is copied from a pod."""

from __future__ import annotations

import gzip
import json
import os
from types import SimpleNamespace

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.intake import job_pods, log_files, log_sources
from recording_entry import Reader


def test_a_log_is_copied_up_to_a_gibibyte_within_two_minutes(tmp_path, monkeypatch):
    class Sink:
        """A file that takes everything and keeps nothing."""

        def open(self, mode):
            return self

        def write(self, piece):
            pass

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda *_: None  # noqa: E731

    class Log:
        def __init__(self):
            self.pieces = 0

        def stream(self, size):
            piece = bytes(64 << 20)
            while True:
                self.pieces += 1
                yield piece

        def close(self):
            pass

    log, options = Log(), {}
    api = SimpleNamespace(read_namespaced_pod_log=lambda *_, **given: options.update(given) or log)
    one = job_pods.PodLog("team", "a", "main", previous=False)
    assert job_pods._copy(api, one, Sink(), None, None)
    assert log.pieces == 16
    assert options["_request_timeout"] == 120.0


def test_logs_are_read_96_kib_at_a_time(monkeypatch):
    log = Reader()
    monkeypatch.setattr(log_files, "_opened", lambda name, **_: log)
    next(log_files.chunks("x"))
    assert log.sizes[0] == 96 << 10


@pytest.mark.parametrize(("files", "read"), [(4096, True), (4097, False)])
def test_4096_logs_are_read_at_once(files, read):
    names = [f"/nowhere/{number}" for number in range(files)]
    if read:
        assert len(log_sources.opened(names)) == 4096
        return
    with pytest.raises(log_files.LogError, match="at most 4096"):
        log_sources.opened(names)


def test_a_directory_that_cannot_be_listed_is_named(tmp_path, monkeypatch, capsys):
    def refused(path, listing=os.scandir):
        if str(path) == str(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "open.log").touch()
    monkeypatch.setattr("os.scandir", refused)  # root is refused nothing
    assert log_sources.files([str(tmp_path)]) == [str(tmp_path / "open.log")]
    why = "its logs are not read, as it cannot be listed: Permission denied"
    assert capsys.readouterr().err == f"{closed}: {why}\n"


def test_a_log_that_disappears_while_its_directory_is_listed_is_none(tmp_path, monkeypatch):
    def gone(path):
        raise FileNotFoundError(path)

    (tmp_path / "open.log").touch()
    monkeypatch.setattr("os.lstat", gone)
    with pytest.raises(log_files.LogError, match="no log in"):
        log_sources.files([str(tmp_path)])


LOST = "[rank3]: FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-00017.tar'\n"
TRACEBACK = f"[rank3]: Traceback (most recent call last):\n{LOST}"


@pytest.fixture
def cut_off(tmp_path):
    """Return a compressed log whose end, which may report anything, is missing."""
    path = tmp_path / "cut.log.gz"
    lines = "".join(f"[rank0]: line {at * 7919 % 104729:x}\n" for at in range(2000))
    path.write_bytes(gzip.compress(lines.encode())[:4000])
    return path


@pytest.mark.parametrize("kind", ["job-log", "nccl-log", "watchdog-log", "kernel-log"])
def test_what_is_concluded_from_a_log_that_is_cut_off_says_so(kind, cut_off, tmp_path, capsys):
    kernel = tmp_path / "a.log"
    kernel.write_text("[81235.020] mlx5_core 0000:49:00.0 mlx5_4: Port: 1 Link ACTIVE\n")
    files = [str(kernel), str(cut_off)]
    assert cli.main(["explain", kind, *files, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["not_read"] == [f"{cut_off}: compressed data is damaged or cut off; read so far"]
    assert cli.main(["explain", kind, *files]) == 0
    assert f"not read: {cut_off}: compressed data is damaged" in capsys.readouterr().out


def test_a_job_whose_logs_are_not_all_read_has_not_survived(cut_off, capsys):
    assert cli.main(["explain", "job-log", str(cut_off), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["failed"], answer["cause"]) == (None, "unknown")
    assert answer["verdict"].startswith("whether the job failed is unknown")
    assert cli.main(["logs", "--from", str(cut_off), "--errors"]) == 0
    assert capsys.readouterr().out.startswith("whether the job failed is unknown")
    assert cli.main(["logs", "--from", str(cut_off), "--errors", "--json"]) == 0
    assert "damaged or cut off" in json.loads(capsys.readouterr().out)["not_read"][0]


@pytest.mark.parametrize("command", [["explain", "job-log"], ["logs", "--errors", "--from"]])
def test_a_log_of_a_directory_that_may_not_be_read_hides_no_other(
    command, tmp_path, monkeypatch, capsys
):
    def refused(name, opened=log_files._opened, **more):
        if name == str(closed):
            raise PermissionError(13, "Permission denied")
        return opened(name, **more)

    closed = tmp_path / "rank1.log"
    closed.touch()
    (tmp_path / "rank3.log").write_text(TRACEBACK)
    monkeypatch.setattr(log_files, "_opened", refused)  # root is refused nothing
    assert cli.main([*command, str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["attempts"][0]["verdict"].startswith("rank 3 failed first")
    assert answer["not_read"] == [f"cannot read {closed}: Permission denied"]
    assert cli.main([*command, str(closed)]) == 1, "a file that was named has to be read"
    assert "Permission denied" in capsys.readouterr().err
