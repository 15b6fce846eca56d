"""The kind of storage below a directory, by the mount table: shared, of one node, or memory."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Reach = Literal["shared", "node", "container", "memory", "unknown"]

SHARED = re.compile(
    r"(?:nfs4?|ceph|lustre|gpfs|mmfs|beegfs(?:_nodev)?|glusterfs|cifs|smb3|afs|pvfs2|orangefs|wekafs"
    r"|9p|virtiofs|gfs2|ocfs2|panfs|vastnfs|daos"
    r"|fuse\.(?:juicefs|JuiceFS|s3fs|gcsfuse|goofys|ceph|glusterfs|mount-s3|blobfuse2?|geesefs"
    r"|daos|dfuse|alluxio|cvmfs2?|seaweedfs|weed|rclone))"
)
NODE = re.compile(r"(?:ext[234]|xfs|btrfs|zfs|f2fs|jfs|reiserfs|bcachefs|ntfs3?|vfat)")

MEANINGS: dict[Reach, str] = {
    "shared": "storage that other nodes can mount as well",
    "node": "a file system of this node: if the node is lost, so is the checkpoint",
    "container": "a container's own layer: it is gone when the container is",
    "memory": "memory of this node: it is gone when the node restarts",
    "unknown": "storage of which it is not known whether other nodes can read it",
}


@dataclass(frozen=True, slots=True)
class StorageKind:
    """A mount: its path and type, and who can read the files on it."""

    mounted_at: str
    kind: str
    reach: Reach


def of(directory: Path, mounts: Path = Path("/proc/self/mountinfo")) -> StorageKind | None:
    """Return the storage that a directory is on, None if the mount table cannot be read."""
    try:
        text = mounts.read_text(errors="surrogateescape")
    except OSError:
        return None
    path = os.path.realpath(directory)
    best: StorageKind | None = None
    for line in text.splitlines():
        mount = _mount(line)
        if mount is None or not _holds(mount.mounted_at, path):
            continue
        if best is None or len(mount.mounted_at) >= len(best.mounted_at):
            best = mount
    return best


def _holds(mounted_at: str, path: str) -> bool:
    return path == mounted_at or path.startswith(mounted_at.rstrip("/") + "/")


def _mount(line: str) -> StorageKind | None:
    """Parse a line of mountinfo: fields, a hyphen, then type, source and options (proc(5))."""
    before, separator, behind = line.partition(" - ")
    fields, rest = before.split(" "), behind.split(" ")
    if not separator or len(fields) < 5:
        return None
    where = re.sub(r"\\(\d{3})", lambda hit: chr(int(hit[1], 8)), fields[4])
    return StorageKind(where, rest[0], _reach(rest[0]))


def _reach(kind: str) -> Reach:
    if SHARED.fullmatch(kind):
        return "shared"
    if NODE.fullmatch(kind):
        return "node"
    if kind in {"tmpfs", "ramfs"}:
        return "memory"
    return "container" if kind in {"overlay", "aufs"} else "unknown"
