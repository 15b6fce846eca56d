"""Separates the values of series that are numbers to calculate with from those that are not: pure.

An infinite value, or one of which a sum is infinite, would make all sums that it enters useless,
also those of other jobs. It costs itself alone, and is counted for its job, or for all jobs of its
node if its series is about none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.intake.unread_counts import NO_JOB, Unread, job_named
from rankscope_analyzers.numeric.arrays import Booleans, Floats
from rankscope_analyzers.text.name_lists import named

LARGEST = 1e60
"""The largest runs compute 1e27 FLOPs; products of five such values are finite."""


def number(text: str) -> float | None:
    """Return the value in a text, None if it is no number to calculate with."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= LARGEST else None  # NaN is not


def known(values: Floats) -> Booleans:
    """Return which values are numbers to calculate with."""
    return np.abs(values) <= LARGEST


def separated(series: Iterable[Series]) -> tuple[Sequence[Series], Mapping[str, Unread]]:
    """Return series without unreadable values, and how many there were, by node and job."""
    found: list[Series] = []
    unread: dict[str, Counter[str]] = defaultdict(Counter)
    for one in series:
        good = known(one.values)
        if good.all():
            found.append(one)
            continue
        unread[one.node][job_named(one.labels.get("job_id"))] += int(np.count_nonzero(~good))
        if good.any():
            found.append(replace(one, times=one.times[good], values=one.values[good]))
    return found, unread


def sentences(of_nodes: Mapping[str, Unread], job_id: str) -> list[str]:
    """Report how many values that may be about a job could not be read.

    Args:
        of_nodes: unreadable values by node.
        job_id: the job.
    """
    counts = {
        node: count
        for node, unread in sorted(of_nodes.items())
        if (count := unread.get(job_id, 0) + unread.get(NO_JOB, 0))
    }
    total = sum(counts.values())
    if not total:
        return []
    what = "1 value of the series" if total == 1 else f"{total:,} values of the series"
    return [f"{what} of {named(list(counts), 'node')}: no finite numbers"]
