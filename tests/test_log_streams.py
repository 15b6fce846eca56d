"""Logs are followed over rotations, restarts and gzip, and hostile files are left alone."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest

from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.nccl_log.segments import LogRejectedError
from rankscope_agent.sources.nccl_log.streams import (
    NO_POD,
    LogLocation,
    LogStream,
    pattern_logs,
    pod_logs,
    rotated,
)

MAX_SEGMENTS = 6


def read_all(stream: LogStream) -> bytes:
    parts = []
    while data := stream.read():
        parts.append(data)
    return b"".join(parts)


def rotate(log: Path, second: int) -> Path:
    """Rename a log as the kubelet does; whoever writes still holds it."""
    return log.rename(log.with_name(f"{log.name}.20261121-0214{second:02d}"))


@pytest.fixture
def log(tmp_path):
    return tmp_path / "0.log"


def followed(log: Path, resume=None) -> LogStream:
    return LogStream(LogLocation(log, NO_POD), resume)


def test_nothing_is_lost_or_read_twice_over_a_rotation(log):
    log.write_bytes(b"one\n")
    stream = followed(log)
    assert read_all(stream) == b"one\n"
    old = rotate(log, 1)
    with old.open("ab") as writer:  # between rename and reopen
        writer.write(b"two\n")
    log.write_bytes(b"three\n")
    stream.look_for_rotation()
    assert read_all(stream) == b"two\nthree\n"
    assert stream.left() == 0
    stream.close()


def test_nothing_is_lost_where_a_file_cannot_tell_when_it_was_written(log, monkeypatch):
    log.write_bytes(b"one\n")
    stream = followed(log)
    fstat, failures = os.fstat, [OSError(116, "Stale file handle")]

    def failing(descriptor: int) -> os.stat_result:
        if failures:
            raise failures.pop()
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", failing)
    with pytest.raises(OSError, match="Stale"):
        stream.read()
    assert read_all(stream) == b"one\n"
    stream.close()


@pytest.mark.parametrize(
    "names",
    [
        ("job.log.10", "job.log.2.gz", "job.log.1"),
        ("job.log-20260101.gz", "job.log-20260102"),
        ("job.log.20260101-000000.gz", "job.log.20260101-000001"),
    ],
)
def test_earlier_files_that_match_a_pattern_are_parts_of_their_log_oldest_first(tmp_path, names):
    texts = [name.encode() + b"\n" for name in (*names, "job.log")]
    for name, text in zip((*names, "job.log"), texts, strict=True):
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    (tmp_path / "job.log.rank3").write_bytes(b"a log of its own\n")
    (tmp_path / "job2.log.1").write_bytes(b"a log that is gone\n")
    found = [location.path.name for location in pattern_logs(tmp_path / "job*")]
    assert found == ["job.log", "job.log.rank3", "job2.log.1"]
    stream = followed(tmp_path / "job.log")
    assert read_all(stream) == b"".join(texts)
    stream.close()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(PermissionError, "permission"), (OSError, "unreadable"), (FileNotFoundError, None)],
)
def test_a_directory_of_a_pattern_that_cannot_be_read_is_counted(
    tmp_path, monkeypatch, error, reason
):
    def refuse(_):
        raise error

    monkeypatch.setattr(os, "scandir", refuse)
    rejected = Counter()
    assert list(pattern_logs(tmp_path / "nccl.*", rejected)) == []
    assert rejected == ({reason: 1} if reason else {})


def test_a_directory_that_may_not_be_entered_keeps_no_other_from_being_read(tmp_path, monkeypatch):
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "nccl.1").write_text("a\n")
    patterns = (tmp_path / "closed" / "logs" / "nccl.*", tmp_path / "open" / "nccl.*")
    is_dir, scandir = Path.is_dir, os.scandir

    def refusing(call):
        def called(path):
            if "closed" in str(path):
                raise PermissionError
            return call(path)

        return called

    monkeypatch.setattr(Path, "is_dir", refusing(is_dir))
    monkeypatch.setattr(os, "scandir", refusing(scandir))
    follower = NcclFollower(tmp_path / "pods", patterns, lambda: 0.0, 1.0, lambda: 0.0)
    assert follower.rescan(0.0)
    assert (follower.logs, follower.rejected["permission"]) == (1, 1)


def test_a_restart_after_numbered_files_were_renamed_reads_the_rest_and_nothing_twice(log):
    first, second = log.with_name("0.log.1"), log.with_name("0.log.2")
    first.write_bytes(b"first\n")
    log.write_bytes(b"second\n")
    stream = followed(log)
    assert read_all(stream) == b"first\nsecond\n"
    position = stream.position(0)
    stream.close()
    first.rename(second)
    with log.open("ab") as writer:
        writer.write(b"rest\n")
    log.rename(first)
    log.write_bytes(b"third\n")
    again = followed(log, position)
    assert read_all(again) == b"rest\nthird\n"
    again.close()


def test_what_was_rotated_before_is_read_oldest_first(log):
    for second, text in ((1, b"first\n"), (2, b"second\n")):
        log.write_bytes(text)
        rotate(log, second)
    oldest, newer = rotated(log)
    newer.rename(newer)
    oldest.with_name(f"{oldest.name}.gz").write_bytes(gzip.compress(oldest.read_bytes()))
    oldest.unlink()
    oldest.with_name(f"{oldest.name}.tmp").write_bytes(b"in the making")
    log.write_bytes(b"now\n")
    stream = followed(log)
    assert read_all(stream) == b"first\nsecond\nnow\n"
    stream.close()


def test_a_damaged_archive_is_read_up_to_its_damage(log):
    whole = gzip.compress(os.urandom(200_000))
    log.with_name("0.log.20261121-021401.gz").write_bytes(whole[:100_000] + b"\0" * 50_000)
    log.write_bytes(b"now\n")
    stream = followed(log)
    assert read_all(stream).endswith(b"now\n")
    assert 0 < stream.skipped_bytes <= 150_000
    stream.close()


def test_a_restart_goes_on_where_reading_ended(log):
    log.write_bytes(b"one\ntwo\nhalf")
    stream = followed(log)
    read_all(stream)
    position = stream.position(len(b"half"))
    stream.close()
    with log.open("ab") as writer:
        writer.write(b" whole\n")
    again = followed(log, position)
    assert read_all(again) == b"half whole\n"
    again.close()


def test_a_restart_after_a_rotation_reads_the_rest_of_the_old_file_first(log):
    log.write_bytes(b"one\n")
    stream = followed(log)
    read_all(stream)
    position = stream.position(0)
    stream.close()
    old = rotate(log, 1)
    with old.open("ab") as writer:
        writer.write(b"two\n")
    log.write_bytes(b"three\n")
    again = followed(log, position)
    assert read_all(again) == b"two\nthree\n"
    again.close()


def test_a_restart_while_an_old_file_is_being_read_reads_the_rest_of_it(log):
    text = (b"a" * 99 + b"\n") * 5000
    log.write_bytes(text)
    stream = followed(log)
    begun = stream.read()
    rotate(log, 1)
    log.write_bytes(b"new\n")
    stream.look_for_rotation()
    position = stream.position(0)
    stream.close()
    again = followed(log, position)
    assert begun + read_all(again) == text + b"new\n"
    again.close()


def test_files_that_are_gone_are_not_remembered(log):
    log.write_bytes(b"new\n")
    stream = followed(log)
    for second in range(20):
        read_all(stream)
        for old in rotated(log):
            old.unlink()
        newest = rotate(log, second)
        log.write_bytes(b"new\n")
        stream.look_for_rotation()
    read_all(stream)
    position = stream.position(0)
    assert position.done == (newest.name,)
    stream.close()


def test_a_file_that_was_emptied_is_read_from_its_start(log):
    log.write_bytes(b"a long line of text\n")
    stream = followed(log)
    read_all(stream)
    log.write_bytes(b"new\n")
    assert read_all(stream) == b"new\n"
    stream.close()


def test_files_that_pile_up_unread_are_skipped_and_counted(log):
    log.write_bytes(b"0\n")
    stream = followed(log)
    for second in range(MAX_SEGMENTS + 2):
        rotate(log, second)
        log.write_bytes(b"more\n")
        stream.look_for_rotation()
    assert stream.skipped_bytes > 0
    assert len(read_all(stream)) == MAX_SEGMENTS * len(b"more\n")
    stream.close()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda log: log.symlink_to("/etc/passwd"), "symlink"),
        (lambda log: os.mkfifo(log), "not_regular"),
        (lambda log: log.mkdir(), "not_regular"),
    ],
    ids=["link", "fifo", "directory"],
)
def test_anything_but_a_file_is_left_alone(log, make, reason):
    make(log)
    with pytest.raises(LogRejectedError) as caught:
        followed(log)
    assert caught.value.reason == reason


@pytest.mark.parametrize("which", [0, 1, 2])
def test_of_a_log_that_is_not_read_no_file_stays_open(log, which):
    files = [rotate_new(log, 1), rotate_new(log, 2), log]
    log.write_bytes(b"new\n")
    files[which].unlink()
    files[which].symlink_to("/etc/passwd")
    before = open_files()
    with pytest.raises(LogRejectedError):
        followed(log)
    assert open_files() == before


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def rotate_new(log: Path, second: int) -> Path:
    log.write_bytes(b"old\n")
    return rotate(log, second)


def test_the_newest_start_of_each_container_is_found(tmp_path):
    folder = tmp_path / "team-a_train-0_1234-abcd" / "main"
    folder.mkdir(parents=True)
    for name in ("9.log", "10.log", "10.log.20261121-021400.gz", "notes.txt"):
        (folder / name).touch()
    (tmp_path / "no-pod").mkdir()
    (location,) = pod_logs(tmp_path)
    assert location.path == folder / "10.log"
    assert (location.owner.namespace, location.owner.name, location.owner.uid) == (
        "team-a",
        "train-0",
        "1234-abcd",
    )


def test_a_pattern_finds_the_files_of_nccl_debug_file(tmp_path):
    for name in ("nccl.gpu-00.7.log", "nccl.gpu-00.8.log", "other"):
        (tmp_path / name).touch()
    assert [location.path.name for location in pattern_logs(tmp_path / "nccl.*.log")] == [
        "nccl.gpu-00.7.log",
        "nccl.gpu-00.8.log",
    ]
