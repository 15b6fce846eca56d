"""How much of a directory's checkpoints is read: enough for any one, bounded for many."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

STRUCTURE_BYTES = 8 << 20
"""Bytes of pickled structures, some 2 s of work; a shard's has 3 to 200 kB."""

SEARCHED_FILES = 200
"""Files of a checkpoint whose structures are searched for credentials and unknown classes: those of
its other ranks are alike."""

METADATA_BYTES = 96 << 20
"""Bytes of metadata of torch.distributed.checkpoint: 10,000 shards of eight tensors take 10 MB."""


@dataclass(slots=True)
class Effort:
    """The remaining budget for reading.

    Args:
        deep: True if everything is read, and checksums are compared.
    """

    deep: bool = False
    structure_bytes: int = STRUCTURE_BYTES
    metadata_bytes: int = METADATA_BYTES
    skipped_structures: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def searched(self, names: Iterable[str]) -> Sequence[str]:
        """Return the files whose structures are searched."""
        listed = sorted(names)
        return listed if self.deep else listed[:SEARCHED_FILES]

    def may_read(self, size: int) -> bool:
        """Return True if a structure of this many bytes is read."""
        if self.deep:
            return True
        with self._lock:
            if size > self.structure_bytes:
                self.skipped_structures += 1
                return False
            self.structure_bytes -= size
            return True

    def may_read_metadata(self, size: int) -> bool:
        """Return True if metadata of this many bytes is read."""
        if self.deep:
            return True
        with self._lock:
            if size > self.metadata_bytes:
                return False
            self.metadata_bytes -= size
            return True
