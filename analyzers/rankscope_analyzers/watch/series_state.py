"""The saved part of the series of findings: parts of the watch's state, the most important first.

Each job is a separate part, so that a state that does not fit completely still has the open
incidents, and one job with an invalid part costs no other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from rankscope_analyzers.watch.incident_history import IncidentHistory
from rankscope_analyzers.watch.lost_time import Stand
from rankscope_analyzers.watch.store import Part

WATCH, INCIDENTS, SUMS = "watch", "incidents", "sums"
"""Kinds of parts: of all jobs, as the first release wrote them, of a job's incidents, and of its
lost GPU time."""

KINDS = frozenset((WATCH, INCIDENTS, SUMS))


@dataclass(slots=True)
class SeriesState:
    """What is known of all jobs, the most recently seen last.

    Args:
        lost: GPU seconds by job and cause.
        observed: GPU seconds by job.
        history: of incidents.
        stands: the last hang of jobs that hung.
    """

    lost: dict[str, dict[str, float]] = field(default_factory=dict)
    observed: dict[str, float] = field(default_factory=dict)
    history: IncidentHistory = field(default_factory=IncidentHistory)
    stands: dict[str, Stand] = field(default_factory=dict)

    def first_parts(self) -> Iterator[Part]:
        """Yield what must not be lost: jobs with open incidents."""
        yield from self._incidents(open_ones=True)

    def other_parts(self) -> Iterator[Part]:
        """Yield sums and incidents that are over, the newest jobs first."""
        for job_id, by_cause in reversed(self.lost.items()):
            stand = self.stands.get(job_id)
            value = {
                "lost": dict(by_cause),
                "observed": self.observed[job_id],
                **({"stand": astuple(stand)} if stand else {}),
            }
            yield Part(SUMS, job_id, value)
        yield from self._incidents(open_ones=False)

    def _incidents(self, *, open_ones: bool) -> Iterator[Part]:
        for job_id, known in reversed(self.history.kept().items()):
            if known and any(ended_at is None for *_, ended_at in known.values()) is open_ones:
                yield Part(INCIDENTS, job_id, known)


def restored(parts: Iterable[Part]) -> tuple[SeriesState, tuple[str, ...]]:
    """Return the content of parts, and sentences about invalid ones."""
    found = SeriesState()
    histories: dict[str, Any] = {}
    problems = [_problem_of(found, histories, part) for part in reversed(list(parts))]
    found.history = IncidentHistory.of(histories)
    return found, tuple(filter(None, problems))


def _problem_of(found: SeriesState, histories: dict[str, Any], part: Part) -> str:
    """Read a part; return what is wrong with it."""
    try:
        _take(found, histories, part)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        of = f" of job {part.name!a}" if part.name else ""
        return f"incidents and sums{of} are invalid: {error!r}"
    return ""


def _take(found: SeriesState, histories: dict[str, Any], part: Part) -> None:
    value = part.value
    if part.kind == INCIDENTS:
        IncidentHistory.of({part.name: value})
        histories[part.name] = value
    elif part.kind == SUMS:
        _take_sums(found, part.name, value["lost"], value["observed"], value.get("stand"))
    elif part.kind == WATCH:
        _take_whole(found, histories, value)


def _take_whole(found: SeriesState, histories: dict[str, Any], value: Mapping[str, Any]) -> None:
    """Read all jobs from one part, as the first release wrote them."""
    for job_id, lost in value.get("lost", {}).items():
        _take_sums(found, str(job_id), lost, value["observed"][job_id])
    lives = value.get("lives", {})
    IncidentHistory.of(lives)
    histories.update(lives)


def _take_sums(
    found: SeriesState, job_id: str, lost: Mapping[str, Any], observed: Any, stand: Any = None
) -> None:
    sums = defaultdict(float, {str(cause): _sum(one) for cause, one in lost.items()})
    found.observed[job_id] = _sum(observed)
    found.lost[job_id] = sums
    if stand is not None:
        found.stands[job_id] = Stand(*map(_sum, stand))


def _sum(value: float) -> float:
    """Return a saved sum.

    Raises:
        ValueError: it is not a sum.
    """
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"{value!r} is not a sum")
    return float(value)
