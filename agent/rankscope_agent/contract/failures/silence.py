"""Which ranks of a job left no trace of a failure: pure.

A log may name any rank below a million, so that these are runs, not single ranks.
"""

from __future__ import annotations

from collections.abc import Iterable


def silent_ranks(spoken: Iterable[int | None], highest: int) -> tuple[range, ...]:
    """Return the runs of ranks that did not speak, from 0 to the highest rank.

    Args:
        spoken: the ranks that did, None for writers without one; if there are none, nothing shows
            that the others are silent.
        highest: the highest rank named by anything else.
    """
    writers = set(spoken)
    ranks = sorted(rank for rank in writers if rank is not None)
    end = max(highest, *ranks, -1) + 1 if writers else 0
    gaps = (range(low + 1, high) for low, high in zip([-1, *ranks], [*ranks, end], strict=True))
    return tuple(gap for gap in gaps if gap)
