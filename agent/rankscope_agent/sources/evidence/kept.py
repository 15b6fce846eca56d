"""Evidence of jobs that stood on this node, kept within a quota after their processes are gone.

Files lie in the agent's own directory of state, which no job can write; where that cannot be
written, the newest are held in memory until the agent ends.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope_agent.contract import untrusted_json

log = logging.getLogger(__name__)

FOLDER = "hangs"
MAX_KEPT = 16
MAX_KEPT_BYTES = 32 << 20
MAX_HELD_BYTES = 4 << 20
"""Of all that is kept on disk and in memory: one of 8 ranks takes some 100 kB compressed."""

MAX_ONE_BYTES = 4 << 20
MAX_TEXT_BYTES = 64 << 20
"""Most that one may unpack to: a file that was damaged or exchanged is not trusted either."""

NAME = re.compile(r"\d{10,12}-[0-9a-f]{8}")
ENDING = ".json.gz"


class KeptEvidence:
    """What was kept, by name; may be used by any thread.

    Args:
        directory: the agent's directory of state.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        self._lock = threading.Lock()
        self._held: dict[str, bytes] = {}
        self._complained = False

    def put(self, name: str, evidence: Mapping[str, Any]) -> bool:
        """Keep evidence under a name; return False where it is larger than may be kept."""
        packed = gzip.compress(json.dumps(evidence, allow_nan=False).encode(), 6)
        if len(packed) > MAX_ONE_BYTES:
            log.warning("evidence of a hang is not kept: %d bytes", len(packed))
            return False
        with self._lock:
            try:
                self._write(name, packed)
                self._prune()
            except OSError as error:
                self._hold(name, packed, error)
        return True

    def names(self) -> Sequence[str]:
        """Return the names of all that is kept, the oldest first."""
        with self._lock:
            return sorted(
                {*self._held, *(path.name.removesuffix(ENDING) for path in self._files())}
            )

    def get(self, name: str) -> Mapping[str, Any] | None:
        """Return what is kept under a name, None where nothing readable is."""
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
        made = self._folder / f"{name}.tmp"
        made.write_bytes(packed)
        made.chmod(0o600)
        made.replace(self._folder / f"{name}{ENDING}")

    def _hold(self, name: str, packed: bytes, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            log.warning("%s cannot be written (%s): held in memory", self._folder, error.strerror)
        self._held[name] = packed
        while sum(map(len, self._held.values())) > MAX_HELD_BYTES or len(self._held) > MAX_KEPT:
            del self._held[min(self._held)]

    def _files(self) -> list[Path]:
        """Return the files that are kept, the oldest first; names begin with their time."""
        if self._folder.is_symlink():
            return []
        found = (path for path in self._folder.glob(f"*{ENDING}"))
        return sorted(path for path in found if NAME.fullmatch(path.name.removesuffix(ENDING)))

    def _prune(self) -> None:
        room = MAX_KEPT_BYTES
        for count, path in enumerate(reversed(self._files())):
            room -= path.stat().st_size
            if count >= MAX_KEPT or room < 0:
                path.unlink()


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as source:
            return source.read(MAX_ONE_BYTES)
    except OSError:
        return None


def _unpacked(packed: bytes) -> bytes:
    """Unpack what is kept.

    Raises:
        ValueError: it is larger than any is.
        OSError, EOFError: it is damaged, or cut off.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as source:
        text = source.read(MAX_TEXT_BYTES + 1)
    if len(text) > MAX_TEXT_BYTES:
        raise ValueError("larger than any is")
    return text
