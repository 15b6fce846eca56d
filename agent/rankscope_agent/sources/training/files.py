"""Finds ring files and opens them without trusting those who can write to their directories.

A pod owns its volume: it can put links, FIFOs, devices, huge files and millions of names there,
and change them at any moment. So no link is followed below a root that belongs to the node, a file
is looked at before it is opened, and every listing has a bound.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from rankscope_agent.contract.fair_shares import Holder
from rankscope_agent.contract.job_names import JobNameError, PodJob
from rankscope_agent.sources.pods.job_owners import OwnedFile
from rankscope_agent.sources.training.format import HEADER_SIZE, RingError, RingHeader, parse_header
from rankscope_agent.sources.training.locks import is_held
from rankscope_agent.sources.training.naming import NO_PODS, JobNames

RING_SUFFIX = ".ring"
POD_VOLUME = ("volumes", "kubernetes.io~empty-dir", "rankscope")

MAX_RINGS_PER_HOLDER = 64
"""Rings read of one pod, or of one user outside of pods: four times the ranks of the largest nodes
sold."""

MAX_RINGS = 1024
"""Rings read at a time, all of which sixteen pods may take as long as no other pod wants any."""

MAX_NAMES = 4096
"""Names looked at in one directory, some milliseconds of work; the others count as too many."""

MAX_USERS = 256
"""Users whose directories are looked at, beside the one that all of them share."""

MAX_PODS = 1024
"""Pods looked at: twice what the largest nodes run (kubelet's own default is 110)."""

LIVENESS_SECONDS = 600.0
"""Where locks do not work, a ring written to within ten minutes counts as held: as long as the
series of an ended job stay."""

Liveness = Literal["alive", "silent", "ended"]
"""Of the writing process: alive, ended for good, or silent for so long that it counts as ended
although it may write again; the last is known only where locks do not work."""

_USER = re.compile(r"0|[1-9]\d{0,9}")

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class RingDirectory:
    """Where rings may lie.

    Args:
        root: directory that belongs to the node; links in its path are the administrator's.
        parts: the way down from there, of which no part may be a link.
        pod_uid: the pod that owns the directory, empty for the directories of the node.
        user: number of the user who owns it and all that counts in it, None for any.
    """

    root: Path
    parts: tuple[str, ...]
    pod_uid: str
    user: int | None = None

    @property
    def path(self) -> Path:
        """Full path, for messages only."""
        return self.root.joinpath(*self.parts)


@dataclass(frozen=True, slots=True)
class RingFile:
    """A directory entry that may be a ring; `inode` and `changed` tell when it is another one.

    Args:
        user: number of the user whose file it is.
    """

    name: str
    inode: tuple[int, int]
    changed: tuple[int, int]
    modified_ns: int
    user: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The ring files of a directory, newest first; `too_many` is 1 if names were left unseen.

    `bare` says that no name at all is in it.
    """

    files: tuple[RingFile, ...]
    too_many: int
    bare: bool


def holder_of(directory: RingDirectory, pod_namespace: str, user: int) -> Holder:
    """Return who is charged for files of a directory: its pod, or outside of pods their user."""
    if directory.pod_uid:
        return pod_namespace, directory.pod_uid
    return f"user {user}", ""


def pod_directories(kubelet: Path) -> tuple[RingDirectory, ...]:
    """Return the pods' volumes in which rings may lie now; none where there is no kubelet.

    Raises:
        OSError: the kubelet's directory of pods is there and cannot be read.
    """
    pods = kubelet / "pods"
    try:
        entries = os.scandir(pods)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    with entries:
        names = sorted(entry.name for entry in islice(entries, MAX_PODS))
    found = (RingDirectory(pods, (name, *POD_VOLUME), name) for name in names)
    return tuple(directory for directory in found if os.path.lexists(directory.path))


def own_directories(ring_dir: Path) -> tuple[RingDirectory, ...]:
    """Return the node's own directory, and in it those of users, which are named by their number.

    Users cannot list each other's, hold them, or use up the names in them.
    """
    users: list[int] = []
    try:
        with os.scandir(ring_dir) as entries:
            names = [entry.name for entry in islice(entries, MAX_NAMES)]
        users = sorted(int(name) for name in names if _USER.fullmatch(name))
    except OSError:  # opening it will say what is wrong with it
        pass
    of_users = (RingDirectory(ring_dir, (str(user),), "", user) for user in users[:MAX_USERS])
    return RingDirectory(ring_dir, (), ""), *of_users


@contextmanager
def open_directory(directory: RingDirectory) -> Iterator[int]:
    """Give a descriptor of a directory that was reached without following a link.

    Raises:
        FileNotFoundError: it is not there.
        RingError: a part of its path is a link or no directory, or it may not be read, or another
            user made it.
    """
    descriptor = -1
    try:
        descriptor = os.open(directory.root, _DIRECTORY_FLAGS)
        for part in directory.parts:
            outer = descriptor
            descriptor = -1
            try:
                descriptor = os.open(part, _DIRECTORY_FLAGS | os.O_NOFOLLOW, dir_fd=outer)
            finally:
                os.close(outer)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise refuse(error, directory.path) from error
    try:
        _check_user(directory, os.fstat(descriptor).st_uid)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_user(directory: RingDirectory, user: int) -> None:
    """Refuse what lies in a user's directory, or in place of it, and is of somebody else.

    Raises:
        RingError: it is.
    """
    if directory.user not in (None, user):
        raise RingError("identity", f"is of user {user}, in the directory of user {directory.user}")


def refuse(error: OSError, path: Path) -> RingError:
    """Turn a failure to open a directory or file into a reason."""
    if isinstance(error, NotADirectoryError) and path.is_symlink():
        return RingError("symlink", "is a symbolic link, which is not followed")
    if isinstance(error, NotADirectoryError):
        return RingError("not_regular", "is not a directory")
    if error.errno == errno.ELOOP:
        return RingError("symlink", "leads through a symbolic link, which is not followed")
    if isinstance(error, PermissionError):
        return RingError("permission", "may not be read by the agent: permission denied")
    return RingError("unreadable", f"cannot be read: {error.strerror}")


def list_rings(directory_descriptor: int) -> Listing:
    """List what is named like a ring, most recently written first.

    Raises:
        OSError: the directory cannot be read.
    """
    with os.scandir(directory_descriptor) as entries:
        looked_at = list(islice(entries, MAX_NAMES))
        beyond = sum(1 for _ in islice(entries, 1))
    files = list(_ring_files(looked_at))
    files.sort(key=lambda file: file.modified_ns, reverse=True)
    return Listing(tuple(files), beyond, not looked_at)


def _ring_files(entries: Iterable[os.DirEntry[str]]) -> Iterator[RingFile]:
    for entry in entries:
        # A leading dot is a ring in the making, which its probe renames when it is whole.
        if not entry.name.endswith(RING_SUFFIX) or entry.name.startswith("."):
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:  # gone since it was listed
            continue
        yield RingFile(
            entry.name,
            (status.st_dev, status.st_ino),
            (status.st_ctime_ns, status.st_size),
            status.st_mtime_ns,
            status.st_uid,
        )


@dataclass(frozen=True, slots=True)
class OpenRing:
    """A ring under an open descriptor, which the opener closes.

    Args:
        user: number of the user whose file it is.
        pod_namespace: of the pod in whose volume it lies, empty outside of pods.
        names: who knows what jobs are called, and whose they are.
    """

    directory: RingDirectory
    name: str
    inode: tuple[int, int]
    header: RingHeader
    descriptor: int
    user: int
    pod_namespace: str = ""
    names: JobNames = NO_PODS

    @property
    def holder(self) -> Holder:
        """Who takes a place with it."""
        return holder_of(self.directory, self.pod_namespace, self.user)

    @property
    def path(self) -> Path:
        """Full path, for messages only."""
        return self.directory.path / self.name

    @property
    def pod_uid(self) -> str:
        """The pod that the ring is of, as its place says rather than its writer."""
        return self.directory.pod_uid or self.header.pod_uid

    def node(self, own: str) -> str:
        """Name the node that the ring is of; `own` is the agent's.

        A pod's probe knows its host name only, which is the pod's. Outside of pods the writer's
        word counts: machines that share a directory are distinguished by it.
        """
        return own if self.directory.pod_uid else self.header.node or own

    def liveness(self, now_unix_seconds: float) -> Liveness:
        """Return whether the process that writes the ring lives.

        Raises:
            OSError: the file system cannot say.
        """
        held = is_held(self.descriptor)
        if held and not self.directory.pod_uid and self.names.is_locked_by_other(self._file(held)):
            return "ended"
        if held is not None:
            return "alive" if held else "ended"
        age = now_unix_seconds - os.fstat(self.descriptor).st_mtime
        return "alive" if age < LIVENESS_SECONDS else "silent"

    def refusal_of_owner(self) -> RingError | None:
        """Record again who owns its job; return why that is not its user, if it is not.

        A name that no job has may be anyone's, and Slurm may tell whose it is later.
        """
        if not self.directory.pod_uid:
            file = self._file(is_held(self.descriptor) is not False)
            try:
                self.names.check_outside(self.header.pod_uid, self.header.job_id, file)
            except JobNameError as error:
                return RingError("identity", str(error))
        return None

    def _file(self, locked: bool) -> OwnedFile:
        return OwnedFile(self.user, self.inode, locked)


def open_ring(
    directory: RingDirectory,
    directory_descriptor: int,
    name: str,
    names: JobNames = NO_PODS,
) -> OpenRing:
    """Open a ring and read its header; a pod's job is called as Kubernetes calls it.

    Raises:
        FileNotFoundError: it is gone.
        RingError: it is no ring of this version or of this directory, or its owner is unknown.
    """
    try:
        descriptor = open_regular(directory_descriptor, name)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise refuse(error, directory.path / name) from error
    try:
        status = os.fstat(descriptor)
        _check_user(directory, status.st_uid)
        header = _read_header(descriptor, status.st_size, directory.path / name)
        locked = not directory.pod_uid and is_held(descriptor) is not False
        file = OwnedFile(status.st_uid, (status.st_dev, status.st_ino), locked)
        job = _job(header, directory.pod_uid, names, file)
    except BaseException:
        os.close(descriptor)
        raise
    header = dataclasses.replace(header, job_id=job.job_id)
    return OpenRing(
        directory, name, file.inode, header, descriptor, file.user, job.pod_namespace, names
    )


def open_regular(directory_descriptor: int, name: str) -> int:
    """Open a regular file for reading.

    O_PATH takes hold of a file without opening it, so that even one that is swapped for a device
    at this moment is not touched: opening some devices acts (a watchdog then counts down).

    Raises:
        OSError: it cannot be opened.
        RingError: it is something else.
    """
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_descriptor)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISLNK(mode):
            raise RingError("symlink", "is a symbolic link, which is not followed")
        if not stat.S_ISREG(mode):
            raise RingError("not_regular", f"is no regular file (mode {mode:#o})")
        # O_NONBLOCK: the owner of a file may hold a lease on it, for which an open waits.
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _read_header(descriptor: int, size: int, path: Path) -> RingHeader:
    """Read a header and compare the file's size with it.

    Raises:
        RingError: it is no ring of this version, or of another size than it says.
    """
    try:
        header = parse_header(os.pread(descriptor, HEADER_SIZE, 0))
    except OSError as error:
        raise refuse(error, path) from error
    if size < header.file_size:
        raise RingError("truncated", f"{size} bytes, its header says {header.file_size}")
    if size > header.file_size:
        raise RingError("geometry", f"{size} bytes, its header says {header.file_size}")
    return header


def _job(header: RingHeader, pod_uid: str, names: JobNames, file: OwnedFile) -> PodJob:
    """Return whose a ring is; in a pod's volume its place counts, not what it says.

    Raises:
        RingError: it says that it is of another pod or of a job that is not its own or its
            user's, or the pod is unknown.
    """
    try:
        if not pod_uid:
            names.check_outside(header.pod_uid, header.job_id, file)
            return PodJob(header.job_id, "")
        if header.pod_uid not in ("", pod_uid):
            raise RingError("identity", f"pod uid {header.pod_uid} in the volume of pod {pod_uid}")
        job = names.of_pod(pod_uid, header.job_id)
    except JobNameError as error:
        raise RingError("identity", str(error)) from error
    if job is None:
        raise RingError("pod_unknown", f"the namespace of pod {pod_uid} is not known yet")
    return job
