"""Evidence of jobs that stalled on this node, kept within a quota after their processes are gone.

The files are in the agent's own state directory, which no job can write; if that is not writable,
the newest are held in memory until the agent exits.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.job_names import namespace_of

log = logging.getLogger(__name__)

FOLDER = "hangs"
MAX_KEPT = 16
MAX_KEPT_BYTES = 32 << 20
MAX_HELD_BYTES = 4 << 20
"""Limit on all saved evidence, on disk and in memory: that of 8 ranks takes some 100 kB
compressed."""

MAX_ONE_BYTES = 4 << 20
MAX_TEXT_BYTES = 64 << 20
"""Limit on the unpacked size: a file that was damaged or replaced is not trusted either."""

NAME = re.compile(r"\d{10,12}-[0-9a-f]{8}")
_DIGITS = 4  # of each of the two digests in a name
ENDING = ".json.gz"
UNFINISHED = "unfinished.tmp"
"""The same file for all: what a full disk leaves of one is overwritten by the next."""


class SavedEvidence:
    """Saved evidence by name; may be used by any thread.

    Args:
        directory: the agent's state directory.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        self._lock = threading.Lock()
        self._held: dict[str, bytes] = {}
        self._complained = False

    def put(self, name: str, evidence: Mapping[str, Any]) -> bool:
        """Save evidence under a name; return False if it is too large."""
        packed = gzip.compress(json.dumps(evidence, allow_nan=False).encode(), 6)
        if len(packed) > MAX_ONE_BYTES:
            log.warning("evidence of a hang is not saved: %d bytes are too many", len(packed))
            return False
        with self._lock:
            try:
                self._write(name, packed)
                self._prune()
            except OSError as error:
                self._hold(name, packed, error)
        return True

    def names(self) -> Sequence[str]:
        """Return the names of all saved evidence, oldest first."""
        with self._lock:
            return sorted(
                {*self._held, *(path.name.removesuffix(ENDING) for path in self._files())}
            )

    def get(self, name: str) -> Mapping[str, Any] | None:
        """Return the evidence saved under a name; None if there is none that can be read."""
        if not NAME.fullmatch(name):
            return None
        with self._lock:
            packed = self._held.get(name) or _read(self._folder / f"{name}{ENDING}")
        try:
            found = untrusted_json.read(_unpacked(packed)) if packed else None
        except (OSError, EOFError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _write(self, name: str, packed: bytes) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        made = self._folder / UNFINISHED
        made.write_bytes(packed)
        made.chmod(0o600)
        made.replace(self._folder / f"{name}{ENDING}")

    def _hold(self, name: str, packed: bytes, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            log.warning("cannot write %s (%s): held in memory", self._folder, error.strerror)
        self._held[name] = packed
        sizes = {one: len(content) for one, content in self._held.items()}
        for one in _surplus(sizes, MAX_HELD_BYTES):
            del self._held[one]

    def _files(self) -> list[Path]:
        """Return the saved files, oldest first; names begin with their time."""
        if self._folder.is_symlink():
            return []
        found = (path for path in self._folder.glob(f"*{ENDING}"))
        return sorted(path for path in found if NAME.fullmatch(path.name.removesuffix(ENDING)))

    def _prune(self) -> None:
        sizes = {path.name: path.stat().st_size for path in self._files()}
        for name in _surplus(sizes, MAX_KEPT_BYTES):
            (self._folder / name).unlink()


def evidence_name(job_id: str, taken_unix_seconds: float) -> str:
    """Return a name for evidence: its time, and digests of the job's namespace and of the job."""
    namespace = _digest(namespace_of(job_id))
    return f"{taken_unix_seconds:.0f}-{namespace}{_digest(f'{job_id}{taken_unix_seconds}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _surplus(sizes: Mapping[str, int], most: int) -> Sequence[str]:
    """Return the names to remove: as long as it is too much, the oldest of the largest namespace.

    So jobs of one namespace that stall again and again remove no evidence of another's.

    Args:
        sizes: bytes by name.
        most: how many bytes there may be.
    """
    left, removed = sorted(sizes), []
    while len(left) > MAX_KEPT or sum(sizes[name] for name in left) > most:
        held = Counter(map(_namespace, left))
        largest = max(held.values())
        removed.append(next(name for name in left if held[_namespace(name)] == largest))
        left.remove(removed[-1])
    return removed


def _namespace(name: str) -> str:
    """Return the digest of a namespace in a name."""
    return name.partition("-")[2][:_DIGITS]


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as source:
            return source.read(MAX_ONE_BYTES)
    except OSError:
        return None


def _unpacked(packed: bytes) -> bytes:
    """Unpack saved evidence.

    Raises:
        ValueError: it is too large.
        OSError, EOFError: it is damaged or cut off.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as source:
        text = source.read(MAX_TEXT_BYTES + 1)
    if len(text) > MAX_TEXT_BYTES:
        raise ValueError("too large")
    return text
