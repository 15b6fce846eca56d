"""Ranks, nodes and devices as lists in sentences: never longer than a line, the rest counted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

SHOWN = 8
"""Names, or runs of ranks, that a sentence holds at most."""

RUN = 3
"""Consecutive ranks from which on they are written as a run: 0, 1 but 0-2."""


def listed(items: Iterable[object]) -> str:
    """Write "a, b", or the first few "and 12 more"."""
    texts = [str(item) for item in items]
    return _with_rest(texts[:SHOWN], len(texts) - SHOWN)


def named(items: Iterable[object], one: str, many: str = "") -> str:
    """Write "node a", "nodes a, b" or "nodes a, b and 12 more"."""
    texts = [str(item) for item in items]
    return f"{one if len(texts) == 1 else many or f'{one}s'} {listed(texts)}"


def shortened(sentences: Sequence[str]) -> str:
    """Write the first sentences as one text, and how many more there are."""
    more = len(sentences) - SHOWN
    return "; ".join(sentences[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def ranks_listed(ranks: Iterable[int]) -> str:
    """Write ranks in order, consecutive ones as runs: "0-7, 12, 13 and 40 more"."""
    ordered = sorted(set(ranks))
    places, shown, start = range(len(ordered)), list[str](), 0
    while start < len(ordered) and len(shown) < SHOWN:
        # Within a run, and in no other, ranks and their places differ by the same number.
        apart = ordered[start] - start
        end = bisect_right(places, apart, start, key=lambda place: ordered[place] - place)
        shown.append(_run(ordered[start:end]))
        start = end
    return _with_rest(shown, len(ordered) - start)


def ranks_named(ranks: Iterable[int]) -> str:
    """Write "rank 3", "ranks 3, 5" or "ranks 0-7 and 12 more"."""
    known = set(ranks)
    return f"rank{'s' * (len(known) != 1)} {ranks_listed(known)}"


def runs_named(runs: Sequence[range]) -> str:
    """Write runs of ranks, in order and apart from each other, as `ranks_named` does."""
    count = sum(map(len, runs))
    texts, more = [_run(run) for run in runs[:SHOWN]], sum(map(len, runs[SHOWN:]))
    return f"rank{'s' * (count != 1)} {_with_rest(texts, more)}"


def _run(ranks: Sequence[int]) -> str:
    return f"{ranks[0]}-{ranks[-1]}" if len(ranks) >= RUN else ", ".join(map(str, ranks))


def _with_rest(texts: list[str], more: int) -> str:
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")
