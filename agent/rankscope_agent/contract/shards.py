"""Which of several watches follows a job: consistent hashing of its name, the same everywhere.

Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm" (arXiv:1406.2294, 2014): when
N watches become N + 1, a job stays where it is or moves to the new one, and 1 in N + 1 moves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

MOST_SHARDS = 64
"""A million ranks: one watch holds 16,384."""

PARAMETER = "shard"
"""Parameter of `/api/v1/steps`, `step_starts` and `spans`: INDEX/TOTAL."""

_TEXT = re.compile(r"([0-9]{1,2})/([0-9]{1,2})")

_MULTIPLIER = 2862933555777941757
"""The multiplier of the paper's linear congruential generator."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The jobs of one of several watches.

    Args:
        index: of the watch, from 0.
        total: number of watches.

    Raises:
        ValueError: the index or the total is out of range.
    """

    index: int
    total: int

    def __post_init__(self) -> None:
        """Validate the numbers."""
        if not 0 <= self.index < self.total <= MOST_SHARDS:
            raise ValueError(f"{self.index}/{self.total} is not a shard of up to {MOST_SHARDS}")

    def __str__(self) -> str:
        """Return the text that `shard_of_text` reads."""
        return f"{self.index}/{self.total}"

    def has(self, job_id: str) -> bool:
        """Return True if this shard contains a job."""
        return self.total == 1 or index_of(job_id, self.total) == self.index


WHOLE = Shard(0, 1)

Jobs = str | Shard | None
"""A job by its name, the jobs of a shard, or all jobs."""


def covers(jobs: Jobs, job_id: str) -> bool:
    """Return True if a job is among the requested ones."""
    return jobs.has(job_id) if isinstance(jobs, Shard) else jobs in (None, job_id)


def shard_of_text(text: str) -> Shard:
    """Read the shard in a parameter.

    Raises:
        ValueError: the text is not a shard.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:20]!a} is not a shard, expected a form such as 0/4")
    return Shard(int(found[1]), int(found[2]))


@lru_cache(maxsize=65_536)
def index_of(job_id: str, total: int) -> int:
    """Return the index of the watch, of a total, that follows a job."""
    digest = blake2b(job_id.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return jump(int.from_bytes(digest, "big"), total)


def jump(key: int, total: int) -> int:
    """Return the bucket of a 64-bit key: the paper's `JumpConsistentHash`."""
    index, following = 0, 0
    while following < total:
        index = following
        key = (key * _MULTIPLIER + 1) % 2**64
        following = int((index + 1) * (2**31 / ((key >> 33) + 1)))
    return index
