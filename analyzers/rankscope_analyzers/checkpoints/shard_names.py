"""Missing shards that files' names, or counts in files, imply."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rankscope_analyzers.checkpoints import names

MAX_EXPECTED = 200_000
"""Shards that are enumerated; a name could give rank 9,999,999."""

_NUMBERED = re.compile(
    r"(?P<word>mp_rank|pp_rank|dp_rank|tp_rank|rank|rng_state|random_states)"
    r"(?P<between>[-_=]?)(?P<number>\d{1,7})(?P<second>_\d{3})?(?!\d)"
)


@dataclass(frozen=True, slots=True)
class Family:
    """Files whose names differ only in their ranks.

    Args:
        pattern: the name, with {} for each rank.
        widths: digits of each number, 0 where they vary.
        ranks: the ranks of those that exist.
    """

    pattern: str
    widths: tuple[int, ...]
    ranks: frozenset[tuple[int, ...]]

    @property
    def counts(self) -> tuple[int, ...]:
        """Return how many ranks there are at least along each number."""
        return tuple(max(numbers) + 1 for numbers in zip(*self.ranks, strict=True))

    def missing(self, counts: tuple[int, ...]) -> Iterator[str]:
        """Yield the names of missing files, given how many there should be."""
        ranges = [range(count) for count in counts]
        expected = itertools.islice(itertools.product(*ranges), MAX_EXPECTED)
        for ranks in expected:
            if ranks not in self.ranks:
                yield self.name(ranks)

    def name(self, ranks: tuple[int, ...]) -> str:
        """Return the name of one of them."""
        parts = [f"{rank:0{width}d}" for rank, width in zip(ranks, self.widths, strict=True)]
        return self.pattern.format(*parts)


def families(files: Iterable[str]) -> Mapping[str, Family]:
    """Return files whose names give ranks, grouped by the rest of their names."""
    ranks: dict[str, dict[tuple[int, ...], tuple[int, ...]]] = defaultdict(dict)
    for name in files:
        pattern, numbers = _pattern(name)
        if numbers:
            ranks[pattern][tuple(map(int, numbers))] = tuple(map(len, numbers))
    return {pattern: _family(pattern, found) for pattern, found in ranks.items()}


def _family(pattern: str, found: Mapping[tuple[int, ...], tuple[int, ...]]) -> Family:
    widths = tuple(
        lengths[0] if len(set(lengths)) == 1 and lengths[0] > 1 else 0
        for lengths in zip(*found.values(), strict=True)
    )
    return Family(pattern, widths, frozenset(found))


def _pattern(name: str) -> tuple[str, list[str]]:
    numbers: list[str] = []

    def opened(hit: re.Match[str]) -> str:
        numbers.append(hit["number"])
        second = hit["second"]
        if second:
            numbers.append(second[1:])
        return f"{hit['word']}{hit['between']}{{}}{'_{}' if second else ''}"

    return _NUMBERED.sub(opened, name.replace("{", "{{").replace("}", "}}")), numbers


def missing_parts(files: Iterable[str]) -> Iterator[str]:
    """Yield missing files that names such as model-00001-of-00004.safetensors imply."""
    present: dict[tuple[str, int], set[int]] = defaultdict(set)
    samples: dict[tuple[str, int], str] = {}
    for name in files:
        part = names.part_of(name)
        if part is not None:
            family, number, count = part
            present[family, count].add(number)
            samples[family, count] = name
    for (family, count), numbers in present.items():
        first = 0 if 0 in numbers else 1
        for number in range(first, min(first + count, first + MAX_EXPECTED)):
            if number not in numbers:
                yield _numbered_as(samples[family, count], number)


def _numbered_as(sample: str, number: int) -> str:
    return re.sub(
        r"\d{1,7}(?=[-_]of[-_]\d)",
        lambda hit: f"{number:0{len(hit[0])}d}",
        sample,
        count=1,
        flags=re.IGNORECASE,
    )


def missing_ranks(family: Family, known: tuple[int, ...] | None) -> Iterator[str]:
    """Yield the missing files of ranks.

    Args:
        family: the files that exist.
        known: how many there should be along each number, None if unknown.
    """
    counts = family.counts
    if known is not None and len(known) == len(counts):
        yield from family.missing(tuple(map(max, counts, known)))
    elif len(family.ranks) > 1 or not any(next(iter(family.ranks))):
        yield from family.missing(counts)
