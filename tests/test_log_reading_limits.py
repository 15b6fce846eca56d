"""How many logs are read at once, in which pieces, and how much of one is copied from a pod."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

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
