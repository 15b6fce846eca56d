"""Names of jobs and nodes as parts of file names."""

from __future__ import annotations

import hashlib
import re

MAX_LENGTH = 128
"""Characters: what a capture allows, and half of what file systems do."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def file_stem(name: str) -> str:
    """Return a name as a file name: no separators, not hidden, of bounded length.

    A name that had to be changed ends in a part of its digest: jobs `a/b` and `a_b` are two.
    """
    safe = _UNSAFE.sub("_", name).strip("._")[:MAX_LENGTH] or "job"
    if safe == name:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:8]
    return f"{safe[: MAX_LENGTH - 9]}-{digest}"
