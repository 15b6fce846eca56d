"""Separates the rows of step records that can be read from those that cannot: pure.

An unreadable row costs itself alone. It is counted for its job, or for all jobs if its own is
unreadable too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rankscope_analyzers.intake.unread_counts import NO_JOB, Unread, job_named
from rankscope_analyzers.steps.records import MAXIMUM_RANK

PLAIN = frozenset((str, int, float, bool, type(None)))
"""Types of values in a record."""

LARGEST = 2**63 - 1
"""Larger numbers are in no record, and not all of them can be converted to floats."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """What a row must be.

    Args:
        length: number of values.
        known: places of the values that are read.
        job: place of the job's name.
        rank: place of the rank's number.
    """

    length: int
    known: Sequence[int]
    job: int
    rank: int

    def read(self, rows: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Return the values of rows that are read.

        Raises:
            ValueError: a row is too long, too short or not a row, or holds an invalid value.
        """
        if {type(row) for row in rows} - {list} or {len(row) for row in rows} - {self.length}:
            raise ValueError(f"a row does not have {self.length} values")
        jobs, ranks = [row[self.job] for row in rows], [row[self.rank] for row in rows]
        if len(self.known) < self.length:
            rows = [[row[index] for index in self.known] for row in rows]
        _check_values(rows)
        if {type(job) for job in jobs} - {str}:
            raise ValueError("the name of a job is not a text")
        for rank in ranks:
            if type(rank) is not int or not 0 <= rank <= MAXIMUM_RANK:
                raise ValueError(f"{rank!r} is not a rank")
        return rows

    def one(self, row: Any) -> Sequence[Any] | None:
        """Return the values of a row, None if it cannot be read."""
        try:
            return self.read([row])[0]
        except ValueError:
            return None

    def job_of(self, row: Any) -> str:
        """Return the job of an unreadable row, if it can be read."""
        if type(row) is not list or len(row) != self.length:
            return NO_JOB
        return job_named(row[self.job])


def _check_values(rows: Sequence[Sequence[Any]]) -> None:
    if strange := set(map(type, chain.from_iterable(rows))) - PLAIN:
        raise ValueError(f"a value is a {strange.pop().__name__}")
    if any(type(value) is int and abs(value) > LARGEST for value in chain.from_iterable(rows)):
        raise ValueError(f"a number is larger than {LARGEST}")
    for text in {value for value in chain.from_iterable(rows) if type(value) is str}:
        text.encode()  # half a surrogate pair, which JSON allows, cannot be stored in a table


def separated(rows: Sequence[Any], form: RowForm) -> tuple[Sequence[Sequence[Any]], Unread]:
    """Return the rows that can be read, and how many cannot, by job.

    Raises:
        ValueError: there are rows, and none of them can be read.
    """
    try:
        return form.read(rows), {}
    except ValueError as error:
        complaint = error
    values = [form.one(row) for row in rows]
    found = [one for one in values if one is not None]
    if not found:
        raise complaint
    lost = (row for row, one in zip(rows, values, strict=True) if one is None)
    return found, Counter(map(form.job_of, lost))


def sentences(of_agents: Iterable[tuple[str, Unread]], job_id: str) -> list[str]:
    """Report how many rows that may be about a job could not be read, by agent.

    Args:
        of_agents: address of each agent, and its unreadable rows.
        job_id: the job.
    """
    counts = ((url, unread.get(job_id, 0) + unread.get(NO_JOB, 0)) for url, unread in of_agents)
    return [
        f"{count:,} {'row' if count == 1 else 'rows'} of agent {url} could not be read"
        for url, count in counts
        if count
    ]
