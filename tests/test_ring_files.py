"""Opening rings in directories that whoever trains may fill with anything."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from known_pods import pods_of
from pod_json import pod, uid
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.records import parse_pod
from rankscope_agent.sources.training import files as ring_files
from rankscope_agent.sources.training.files import (
    OpenRing,
    RingDirectory,
    list_rings,
    open_directory,
    open_ring,
    pod_directories,
)
from rankscope_agent.sources.training.format import PASSING_REASONS, RingError
from ring_writer import PAGE, RingWriter, header_page

VOLUME = "volumes/kubernetes.io~empty-dir/rankscope"


@contextmanager
def opened(path: Path, name: str = "4242-99.ring", pod_uid: str = "") -> Iterator[OpenRing]:
    directory = RingDirectory(path, (), pod_uid)
    with open_directory(directory) as descriptor:
        ring = open_ring(directory, descriptor, name, pods_of("team"))
    try:
        yield ring
    finally:
        os.close(ring.descriptor)


def refusal(path: Path, name: str = "4242-99.ring", pod_uid: str = "") -> str:
    with pytest.raises(RingError) as caught, opened(path, name, pod_uid):
        pass
    return caught.value.reason


def whole_ring(**changes: object) -> bytes:
    return header_page(**changes) + bytes(16 * 64)


@contextmanager
def without_privileges() -> Iterator[Path]:
    """Give a directory of root's in which this process acts as nobody, or simply its own."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    was = os.geteuid()
    try:
        yield directory
    finally:
        os.seteuid(was)
        directory.chmod(0o755)
        shutil.rmtree(directory)


def give_up_privileges() -> None:
    if os.geteuid() == 0:
        os.seteuid(65534)


def pod_volume(kubelet: Path, uid: str) -> Path:
    volume = kubelet / "pods" / uid / VOLUME
    volume.mkdir(parents=True)
    return volume


def test_a_ring_is_opened_with_its_header(tmp_path):
    RingWriter(tmp_path, rank=3).end()
    with opened(tmp_path) as ring:
        assert (ring.header.rank, ring.name) == (3, "4242-99.ring")
        assert ring.inode == (ring.path.stat().st_dev, ring.path.stat().st_ino)
        assert fcntl.fcntl(ring.descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        assert fcntl.fcntl(ring.descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY


def test_a_link_to_a_ring_is_not_followed(tmp_path):
    RingWriter(tmp_path, "real.ring").end()
    (tmp_path / "link.ring").symlink_to(tmp_path / "real.ring")
    assert refusal(tmp_path, "link.ring") == "symlink"


def test_a_dangling_link_is_a_link_too(tmp_path):
    (tmp_path / "link.ring").symlink_to("/nonexistent")
    assert refusal(tmp_path, "link.ring") == "symlink"


def test_a_fifo_is_refused_without_waiting_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / "x.ring")
    assert refusal(tmp_path, "x.ring") == "not_regular"


def test_a_directory_named_like_a_ring_is_refused(tmp_path):
    (tmp_path / "x.ring").mkdir()
    assert refusal(tmp_path, "x.ring") == "not_regular"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")
def test_a_device_is_refused(tmp_path):
    os.mknod(tmp_path / "x.ring", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    assert refusal(tmp_path, "x.ring") == "not_regular"


def test_a_huge_sparse_file_is_refused_by_its_size_alone(tmp_path):
    path = tmp_path / "x.ring"
    path.write_bytes(whole_ring())
    os.truncate(path, 2**40)
    assert refusal(tmp_path, "x.ring") == "geometry"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "too_small"),
        (header_page()[:100], "too_small"),
        (header_page(), "truncated"),
        (whole_ring()[:-1], "truncated"),
        (whole_ring() + b"\0", "geometry"),
        (whole_ring(capacity=65_536), "truncated"),
        (whole_ring(version=9), "version"),
        (b"\xff" * (PAGE + 64), "magic"),
        (bytes(PAGE + 64), "magic"),
    ],
)
def test_a_file_of_other_content_or_size_is_refused(tmp_path, content, reason):
    (tmp_path / "x.ring").write_bytes(content)
    assert refusal(tmp_path, "x.ring") == reason


def test_the_ring_of_a_probe_is_as_large_as_rings_may_be(tmp_path):
    RingWriter(tmp_path, capacity=65_536).end()
    with opened(tmp_path) as ring:
        assert ring.header.capacity == 65_536


def test_a_file_that_may_not_be_read_is_refused():
    with without_privileges() as directory:
        RingWriter(directory).end()
        (directory / "4242-99.ring").chmod(0)
        give_up_privileges()
        assert refusal(directory) == "permission"


def test_a_directory_that_may_not_be_read_is_refused():
    with without_privileges() as directory:
        directory.chmod(0)
        give_up_privileges()
        with pytest.raises(RingError) as caught, open_directory(RingDirectory(directory, (), "")):
            pass
        assert caught.value.reason == "permission"


def test_a_missing_directory_is_missing_not_refused(tmp_path):
    missing = RingDirectory(tmp_path / "none", (), "")
    with pytest.raises(FileNotFoundError), open_directory(missing):
        pass


def test_no_descriptor_is_left_after_refusals(tmp_path):
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    (tmp_path / "x.ring").write_bytes(b"nothing")
    os.mkfifo(tmp_path / "y.ring")
    for name in ("x.ring", "y.ring"):
        refusal(tmp_path, name)
    with pytest.raises(FileNotFoundError), opened(tmp_path, "gone.ring"):
        pass
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


def test_the_volumes_of_pods_are_found_and_others_are_not(tmp_path):
    pod_volume(tmp_path, "uid-b")
    pod_volume(tmp_path, "uid-a")
    (tmp_path / "pods" / "uid-c" / "volumes" / "kubernetes.io~empty-dir" / "cache").mkdir(
        parents=True
    )
    found = pod_directories(tmp_path)
    assert [directory.pod_uid for directory in found] == ["uid-a", "uid-b"]
    assert found[0].path == tmp_path / "pods" / "uid-a" / VOLUME


def test_a_node_without_a_kubelet_has_no_pods(tmp_path):
    assert pod_directories(tmp_path / "none") == ()


def test_a_volume_that_is_a_link_is_refused(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    volume = pod_volume(tmp_path, "uid-a")
    volume.rmdir()
    volume.symlink_to(elsewhere)
    (directory,) = pod_directories(tmp_path)
    with pytest.raises(RingError) as caught, open_directory(directory):
        pass
    assert caught.value.reason == "symlink"


def test_a_link_further_up_in_a_pods_path_is_refused_too(tmp_path):
    pod_volume(tmp_path / "elsewhere", "uid-a")
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "uid-a").symlink_to(tmp_path / "elsewhere" / "pods" / "uid-a")
    (directory,) = pod_directories(tmp_path)
    with pytest.raises(RingError), open_directory(directory):
        pass


def test_a_volume_that_is_a_file_is_refused(tmp_path):
    volume = pod_volume(tmp_path, "uid-a")
    volume.rmdir()
    volume.write_text("")
    (directory,) = pod_directories(tmp_path)
    with pytest.raises(RingError) as caught, open_directory(directory):
        pass
    assert caught.value.reason == "not_regular"


def test_a_ring_of_another_pod_is_refused_in_a_pods_volume(tmp_path):
    RingWriter(tmp_path, pod_uid="uid-a").end()
    assert refusal(tmp_path, pod_uid="uid-b") == "identity"
    with opened(tmp_path, pod_uid="uid-a") as ring:
        assert ring.pod_uid == "uid-a"


def test_a_ring_in_a_pods_volume_is_of_a_job_in_the_pods_namespace_or_of_none(tmp_path):
    for job_id, called in (("llm", "team/llm"), ("team/llm", "team/llm"), ("local/1a2b3c4d", None)):
        RingWriter(tmp_path, job_id=job_id).end()
        with opened(tmp_path, pod_uid="uid-a") as ring:
            assert ring.header.job_id == (called or f"team/{job_id}")
            assert ring.pod_namespace == "team"
        with opened(tmp_path) as ring:
            assert (ring.header.job_id, ring.pod_namespace) == (job_id, "")
    RingWriter(tmp_path, job_id="other/llm").end()
    assert refusal(tmp_path, pod_uid="uid-a") == "identity"


def test_a_ring_of_a_pod_that_nobody_knows_waits(tmp_path):
    RingWriter(tmp_path).end()
    directory = RingDirectory(tmp_path, (), "uid-a")
    with open_directory(directory) as descriptor, pytest.raises(RingError) as caught:
        open_ring(directory, descriptor, "4242-99.ring")
    assert caught.value.reason == "pod_unknown"
    assert caught.value.reason in PASSING_REASONS


def test_a_ring_outside_of_pods_volumes_speaks_for_no_pod_where_there_are_pods(tmp_path):
    pods = PodDirectory()
    directory = RingDirectory(tmp_path, (), "")
    pods.replace([parse_pod(pod("w0", "team", number=1))], 1.0)
    for fields in ({"job_id": "team/llm"}, {"job_id": "alone", "pod_uid": uid(1)}):
        RingWriter(tmp_path, **fields).end()
        with open_directory(directory) as descriptor, pytest.raises(RingError, match="pod"):
            open_ring(directory, descriptor, "4242-99.ring", pods)
        with opened(tmp_path) as ring:  # without an API server or pods nothing is changed
            assert ring.header.job_id == fields["job_id"]
    RingWriter(tmp_path, job_id="elsewhere/llm").end()
    with open_directory(directory) as descriptor:
        os.close(open_ring(directory, descriptor, "4242-99.ring", pods).descriptor)


def test_a_pods_ring_is_of_the_agents_node_and_of_the_volumes_pod(tmp_path):
    RingWriter(tmp_path, node="trainer-0").end()
    with opened(tmp_path, pod_uid="uid-a") as ring:
        assert (ring.node("gpu-01"), ring.pod_uid) == ("gpu-01", "uid-a")
    with opened(tmp_path) as ring:
        assert (ring.node("gpu-01"), ring.pod_uid) == ("trainer-0", "")


def test_the_agents_node_stands_in_for_a_node_not_given(tmp_path):
    RingWriter(tmp_path, node="").end()
    with opened(tmp_path) as ring:
        assert ring.node("gpu-01") == "gpu-01"


def test_rings_are_listed_newest_first_and_unfinished_ones_are_not(tmp_path):
    for age, name in enumerate(("new.ring", "old.ring", ".5-5.ring", "notes.txt", "oldest.ring")):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    with open_directory(RingDirectory(tmp_path, (), "")) as descriptor:
        listing = list_rings(descriptor)
    assert [file.name for file in listing.files] == ["new.ring", "old.ring", "oldest.ring"]
    assert listing.too_many == 0


def test_a_directory_of_too_many_names_is_listed_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_files, "MAX_NAMES", 10)
    for number in range(12):
        (tmp_path / f"{number}.ring").write_text("")
    with open_directory(RingDirectory(tmp_path, (), "")) as descriptor:
        listing = list_rings(descriptor)
    assert (len(listing.files), listing.too_many) == (10, 1)


def test_a_ring_is_alive_while_its_process_holds_it(tmp_path):
    writer = RingWriter(tmp_path)
    with opened(tmp_path) as ring:
        assert ring.liveness(0.0) == "alive"
        writer.end()
        assert ring.liveness(0.0) == "ended"
        assert ring.liveness(0.0) == "ended"


def test_looking_at_a_ring_leaves_it_unlocked(tmp_path):
    writer = RingWriter(tmp_path)
    writer.end()
    with opened(tmp_path) as ring, ring.path.open("rb") as other:
        ring.liveness(0.0)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_without_locks_a_ring_written_lately_counts_as_alive(tmp_path, monkeypatch):
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    RingWriter(tmp_path).end()
    os.utime(tmp_path / "4242-99.ring", (1000, 1000))
    monkeypatch.setattr("rankscope_agent.sources.training.locks.fcntl.flock", no_locks)
    with opened(tmp_path) as ring:
        assert ring.liveness(1000 + 599) == "alive"
        assert ring.liveness(1000 + 600) == "silent"
