"""Whether a ring's lock is held: a probe keeps it as long as its process lives."""

from __future__ import annotations

import errno
import fcntl

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def is_held(descriptor: int) -> bool | None:
    """Return whether a process holds the lock of a ring; None if files cannot be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
