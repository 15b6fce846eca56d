"""Names rings for others: no other ring has the name, before or after, and it reveals nothing."""

from __future__ import annotations

from hashlib import blake2s


def ring_key(inode: tuple[int, int], created_unix_ns: int, name: str) -> str:
    """Return the name of a ring.

    Args:
        inode: device and inode of its file.
        created_unix_ns: when its header says that it was created.
        name: of its file.
    """
    device, number = inode
    written = f"{device}:{number}:{created_unix_ns}:{name}"
    return blake2s(written.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
