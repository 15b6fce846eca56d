"""Finds ring files and opens them without trusting those who can write to their directories.

A pod owns its volume: it can create links, FIFOs, devices, huge files and millions of names there,
and change them at any time. So no link is followed below a root that belongs to the node, a file is
checked before it is opened, and every listing is limited.
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
"""Rings read per pod, or per user outside of pods: four times the ranks of the largest nodes."""

MAX_RINGS = 1024
"""Rings read at a time; sixteen pods may use all of them as long as no other pod needs any."""

MAX_NAMES = 4096
"""Names read in one directory, some 30 milliseconds of work; further ones count as too many."""

MAX_USERS = 256
"""Users whose own directories are read, in addition to the shared one."""

MAX_PODS = 1024
"""Pods whose directories are read: twice what the largest nodes run (kubelet's default: 110)."""

LIVENESS_SECONDS = 600.0
"""Where locks fail, rings written to since count as held; an ended job's series stay as long."""

Liveness = Literal["alive", "silent", "ended"]
"""State of the writer; silent: where locks fail, one that counts as ended but may write again."""

_USER = re.compile(r"0|[1-9]\d{0,9}")

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class RingDirectory:
    """A directory that may contain rings.

    Args:
        root: directory that belongs to the node; links in its path are the administrator's.
        parts: the path below it, of which no part may be a link.
        pod_uid: the pod that owns the directory; empty for the directories of the node.
        user: the user id that owns it and every ring in it; None for any.
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
    """A directory entry that may be a ring; `inode` and `changed` show when it is replaced.

    Args:
        user: user id of the file's owner.
    """

    name: str
    inode: tuple[int, int]
    changed: tuple[int, int]
    modified_ns: int
    user: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The ring files of a directory, newest first; `too_many` is 1 if names were left unread.

    `bare` states that it contains no names at all.
    """

    files: tuple[RingFile, ...]
    too_many: int
    bare: bool


def holder_of(directory: RingDirectory, pod_namespace: str, user: int) -> Holder:
    """Return in whose share a directory's files count: its pod's, else their user's."""
    if directory.pod_uid:
        return pod_namespace, directory.pod_uid
    return f"user {user}", ""


def pod_directories(kubelet: Path) -> tuple[RingDirectory, ...]:
    """Return the pods' volumes in which rings may be now; empty without a kubelet.

    Raises:
        OSError: the kubelet's directory of pods exists but cannot be read.
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
    """Return the node's own directory and the users' directories in it, named by user id.

    Users cannot list each other's, lock files in them, or use up the names in them.
    """
    users: list[int] = []
    try:
        with os.scandir(ring_dir) as entries:
            names = [entry.name for entry in islice(entries, MAX_NAMES)]
        users = sorted(int(name) for name in names if _USER.fullmatch(name))
    except OSError:  # opening it will report what is wrong with it
        pass
    of_users = (RingDirectory(ring_dir, (str(user),), "", user) for user in users[:MAX_USERS])
    return RingDirectory(ring_dir, (), ""), *of_users


@contextmanager
def open_directory(directory: RingDirectory) -> Iterator[int]:
    """Yield a descriptor of a directory that was reached without following a link.

    Raises:
        FileNotFoundError: it does not exist.
        RingError: part of its path is a link or not a directory, or it may not be read, or another
            user created it.
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
    """Reject what is in a user's directory, or in its place, but belongs to another user.

    Raises:
        RingError: it belongs to another user.
    """
    if directory.user not in (None, user):
        raise RingError("identity", f"of user {user}, in a directory of user {directory.user}")


def refuse(error: OSError, path: Path) -> RingError:
    """Convert a failure to open a directory or file to a reason."""
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
    """List files that are named like rings, most recently written first.

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
        # A leading dot marks an unfinished ring, which its probe renames when complete.
        if not entry.name.endswith(RING_SUFFIX) or entry.name.startswith("."):
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:  # removed since it was listed
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
    """A ring with an open descriptor, which the opener closes.

    Args:
        user: user id of the file's owner.
        pod_namespace: of the pod that owns its volume; empty outside of pods.
        names: provides the names and owners of jobs.
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
        """In whose share it counts."""
        return holder_of(self.directory, self.pod_namespace, self.user)

    @property
    def path(self) -> Path:
        """Full path, for messages only."""
        return self.directory.path / self.name

    @property
    def pod_uid(self) -> str:
        """The pod of the ring, according to its location rather than its writer."""
        return self.directory.pod_uid or self.header.pod_uid

    def node(self, own: str) -> str:
        """Return the node of the ring; `own` is the agent's.

        A pod's probe only knows its host name, which is the pod's. Outside of pods the writer's
        statement counts: it distinguishes machines that share a directory.
        """
        return own if self.directory.pod_uid else self.header.node or own

    def liveness(self, now_unix_seconds: float) -> Liveness:
        """Return whether the process that writes the ring is alive.

        Raises:
            OSError: the file system cannot tell.
        """
        held = is_held(self.descriptor)
        if held and not self.directory.pod_uid and self.names.is_locked_by_other(self._file(held)):
            return "ended"
        if held is not None:
            return "alive" if held else "ended"
        age = now_unix_seconds - os.fstat(self.descriptor).st_mtime
        return "alive" if age < LIVENESS_SECONDS else "silent"

    def refusal_of_owner(self) -> RingError | None:
        """Record again who owns its job; return why that is not its user, if so.

        A name that no job has may be anyone's, and Slurm may show its owner later.

        Raises:
            OSError: its lock cannot be asked for.
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
    """Open a ring and read its header; a pod's job has the name that Kubernetes uses.

    Raises:
        OSError: it is gone, or its lock cannot be asked for.
        RingError: it is not a ring of this version or of this directory, or its owner is unknown.
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

    O_PATH refers to a file without opening it, so that even one that is replaced by a device at
    this moment is not touched: opening some devices has effects (a watchdog starts counting down).

    Raises:
        OSError: it cannot be opened.
        RingError: it is not a regular file.
    """
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_descriptor)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISLNK(mode):
            raise RingError("symlink", "is a symbolic link, which is not followed")
        if not stat.S_ISREG(mode):
            raise RingError("not_regular", f"is not a regular file (mode {mode:#o})")
        # O_NONBLOCK: the owner of a file may hold a lease on it, which would delay an open.
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _read_header(descriptor: int, size: int, path: Path) -> RingHeader:
    """Read a header and compare the file's size with it.

    Raises:
        RingError: it is not a ring of this version, or its size differs from the header's.
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
    """Return the job of a ring; in a pod's volume its location counts, not its header.

    Raises:
        RingError: it claims another pod, or a job that is not its own or its user's, or the pod is
            unknown.
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
