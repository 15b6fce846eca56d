"""What the spans of a job hold: at each limit and just beyond it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rankscope_analyzers.tracing import spans
from rankscope_analyzers.tracing.job_trace import JobTrace

BEGAN = 1_800_000_000.0


def trace():
    return JobTrace("team/llm", BEGAN, BEGAN + 100.0, 0, 0, BEGAN)


def incident(number, nodes=("gpu-07",), ranks=(13,)):
    return SimpleNamespace(
        cause=SimpleNamespace(kind=f"kind-{number}"),
        timing=None,
        where=SimpleNamespace(nodes=tuple(nodes), ranks=tuple(ranks)),
        severity="page",
        summary="rank 13 is slow",
        runbook="RankscopeRankSlow",
        since_unix_seconds=BEGAN + 50.0,
        until_unix_seconds=None,
    )


def report(*incidents):
    """Return what a look at a job found."""
    return SimpleNamespace(
        incidents=incidents, made_unix_seconds=BEGAN + 60.0, missing=("records",), verdict=None
    )


class Steps(SimpleNamespace):
    """Steps of a second each, half of which was a checkpoint."""

    def __len__(self):
        return len(self.start)


def looked(known, *incidents, start=BEGAN, count=0):
    none = np.zeros(count, np.int64)
    steps = Steps(
        start=none + start,
        end=none + start + 1.0,
        attempt=none,
        restarts=none,
        checkpoint=none + 0.5,
        number=none,
    )
    return list(known.look(steps, report(*incidents)))


@pytest.mark.parametrize(("count", "told"), [(64, 64), (65, 64)])
def test_64_incidents_of_a_job_are_open_at_once(count, told):
    known = trace()
    looked(known, *map(incident, range(count)))
    assert len([one for one in known.close() if one.name == "incident"]) == told


@pytest.mark.parametrize(("count", "named"), [(64, 64), (65, 64)])
def test_the_span_of_an_incident_names_64_ranks(count, named):
    known = trace()
    looked(known, incident(0, ranks=range(count)))
    (span,) = (one for one in known.close() if one.name == "incident")
    assert span.attributes[spans.RANKS] == tuple(range(named))


@pytest.mark.parametrize(("overlap", "seen"), [(0.2, 1), (0.21, 0)])
def test_a_step_may_begin_a_fifth_of_a_second_before_the_end_of_the_one_before(overlap, seen):
    found = looked(trace(), start=BEGAN + 100.0 - overlap, count=1)
    assert len([one for one in found if one.name == "checkpoint"]) == seen
