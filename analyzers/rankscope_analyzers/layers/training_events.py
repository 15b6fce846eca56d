"""The newest events of a job's ranks, by the times that their agents report. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankscope_agent.contract.metrics import reported, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.rank_locations import by_rank, rank_number
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.text.name_lists import ranks_named
from rankscope_analyzers.text.wording import clock

READS: tuple[Metric, ...] = (reported.TRAINING_EVENT, training.LAST_STEP_TIMESTAMP)

NEWS_SECONDS = 1800.0
"""As in the alerts: checkpoints come every ten minutes to an hour, and an older event is over, or
has ended the job."""

WENT_ON_SECONDS = 10.0
"""Steps that end this long afterwards are of a program that survived it: what was under way ends
before."""


@dataclass(frozen=True, slots=True)
class RecentEvent:
    """The ranks that an event recently affected.

    Args:
        series: of these ranks, that of the newest event first.
        ranks: in ascending order.
        nodes: where they were, each once.
    """

    series: Sequence[Series]
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]

    @property
    def newest(self) -> float:
        """Return when it last happened, in Unix seconds."""
        return self.series[0].last

    @property
    def who(self) -> str:
        """Return the ranks, in words."""
        return ranks_named(self.ranks)

    @property
    def at(self) -> str:
        """Return when it last happened, as time of day."""
        return clock(self.newest)


def recent_event(observed: Observed, job_id: str, event: str) -> RecentEvent | None:
    """Return the ranks that an event affected within half an hour, None if there are none."""
    found: dict[int, Series] = {}
    for series in observed.of(reported.TRAINING_EVENT, job_id=job_id, event=event):
        rank = rank_number(series.labels.get("rank", ""))
        is_news = float(series.times[-1]) - series.last < NEWS_SECONDS
        if rank is not None and is_news and series.last > _last(found.get(rank)):
            found[rank] = series
    if not found:
        return None
    newest_first = sorted(found.values(), key=lambda series: -series.last)
    nodes = tuple(sorted({series.node for series in newest_first}))
    return RecentEvent(newest_first, tuple(sorted(found)), nodes)


def _last(series: Series | None) -> float:
    return -math.inf if series is None else series.last


def survivable(
    observed: Observed, job_id: str, event: str, kind: str, what: str
) -> Iterator[Finding]:
    """Yield the finding on an event that affected ranks; it is over if all of them trained on.

    Args:
        observed: what agents report.
        job_id: the job.
        event: as agents name it.
        kind: of the finding.
        what: the predicate of the sentence, after the ranks.
    """
    happened = recent_event(observed, job_id, event)
    if happened is not None:
        until = _went_on(observed, job_id, happened)
        sentence = f"{happened.who} {what} at {happened.at}"
        if until is not None:
            sentence += ", and trained on"
        yield event_finding(kind, job_id, happened, sentence, until)


def _went_on(observed: Observed, job_id: str, after: RecentEvent) -> float | None:
    """Return when all the ranks had ended a step after an event, None if any did not."""
    steps: Mapping[int, Series] = by_rank(observed, training.LAST_STEP_TIMESTAMP, job_id)
    ended = [steps[rank].last for rank in after.ranks if rank in steps]
    if len(ended) < len(after.ranks) or min(ended) < after.newest + WENT_ON_SECONDS:
        return None
    return min(ended)


def event_finding(
    kind: str, job_id: str, happened: RecentEvent, sentence: str, until: float | None
) -> Finding:
    """Return the finding on an event that affected ranks; `until` is when they recovered."""
    newest = happened.series[0]
    evidence = Evidence(newest.name, newest.last, 0.0, "unix seconds", sentence)
    where = Where(nodes=happened.nodes, ranks=happened.ranks)
    return series_finding(
        kind,
        "signals",
        job_id,
        where,
        sentence,
        (evidence,),
        happened.newest,
        until_unix_seconds=until,
    )
