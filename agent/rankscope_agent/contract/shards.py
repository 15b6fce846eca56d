"""Which of several watches follows a job: one by the hash of its name, the same one everywhere.

Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm" (arXiv:1406.2294, 2014): of
N + 1 watches in place of N, a job stays where it is or moves to the new one, and 1 in N + 1 moves.
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
"""Of the paper's linear congruential generator."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The jobs of one of several watches.

    Args:
        index: which one, from 0 on.
        total: of how many.

    Raises:
        ValueError: there is no such one.
    """

    index: int
    total: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0 <= self.index < self.total <= MOST_SHARDS:
            raise ValueError(f"{self.index}/{self.total} is no shard of up to {MOST_SHARDS}")

    def __str__(self) -> str:
        """Return what `shard_of_text` reads."""
        return f"{self.index}/{self.total}"

    def has(self, job_id: str) -> bool:
        """Return True if a job is this one's to follow."""
        return self.total == 1 or index_of(job_id, self.total) == self.index


WHOLE = Shard(0, 1)

Jobs = str | Shard | None
"""A job by its name, the jobs of a shard, or all."""


def covers(jobs: Jobs, job_id: str) -> bool:
    """Return True if a job is among those that are asked for."""
    return jobs.has(job_id) if isinstance(jobs, Shard) else jobs in (None, job_id)


def shard_of_text(text: str) -> Shard:
    """Return what a parameter says.

    Raises:
        ValueError: it is no shard.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:20]!a} is no shard, as 0/4")
    return Shard(int(found[1]), int(found[2]))


@lru_cache(maxsize=65_536)
def index_of(job_id: str, total: int) -> int:
    """Return which of so many watches follows a job."""
    digest = blake2b(job_id.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return jump(int.from_bytes(digest, "big"), total)


def jump(key: int, total: int) -> int:
    """Return the bucket of a key of 64 bits, as the paper's `JumpConsistentHash` does."""
    index, following = 0, 0
    while following < total:
        index = following
        key = (key * _MULTIPLIER + 1) % 2**64
        following = int((index + 1) * (2**31 / ((key >> 33) + 1)))
    return index
