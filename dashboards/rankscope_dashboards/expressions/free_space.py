"""PromQL over free space that falls: what happens once is not a trend.

A regression over hours takes a data set that was copied for one, or the first checkpoints that a
job keeps, for a fall that goes on.
"""

from __future__ import annotations

from itertools import pairwise

from rankscope_dashboards.expressions.promql import before, by

PART_HOURS = 2
PARTS = 3
"""A fall that lasts no longer than one part ends before the newest of three, or began after the
oldest. Checkpoints come at least every hour or two, so that each part has one."""

_OF_A_DAY = 24 // PART_HOURS


def full_within_a_day(free: str, *labels: str) -> str:
    """Return the free space that is gone within a day at the slowest pace of the last three parts.

    What has been seen for less than six hours has no trend.

    Args:
        free: series of free bytes.
        labels: what they are compared by, in addition to the cluster; the least of them counts.
    """
    now = f"min {by(*labels)} ({free})"
    moments = (now, *(_earlier(free, labels, PART_HOURS * n) for n in range(1, PARTS + 1)))
    falls = (f"({then} - {later})" for later, then in pairwise(moments))
    return " and ".join(f"{now} < {_OF_A_DAY} * {fell}" for fell in falls)


def _earlier(free: str, labels: tuple[str, ...], hours: int) -> str:
    return f"min {by(*labels)} ({before(free, f'{hours}h')})"
