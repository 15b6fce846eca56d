"""A job that spends much of its time saving is told so, by what probes mark."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rankscope_agent.contract.model import SPAN_COLUMNS
from rankscope_analyzers.intake import agent_steps
from rankscope_analyzers.steps import beside_steps, frames
from rankscope_analyzers.steps.beside_steps import BesideSteps
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers import checkpoint_share, diagnosis
from simulated_jobs import Job, records
from test_agent_steps import agent_of

ROWS = records(Job(ranks=4, steps=200)).assign(job_id="a/b")
BEGIN = float(ROWS["t_start_unix_seconds"].min())
LENGTH = float((ROWS["t_start_unix_seconds"] + ROWS["step_seconds"]).max()) - BEGIN


def span(rank=0, kind="checkpoint_save", begin=BEGIN, blocked: object = 1.0, job="a/b"):
    row = dict.fromkeys(SPAN_COLUMNS)
    row |= {"job_id": job, "rank": rank, "kind": kind, "t_start_unix_seconds": begin}
    return list((row | {"blocked_seconds": blocked, "outcome": "done"}).values())


def document(*rows, columns=SPAN_COLUMNS):
    return {"node": "n", "columns": list(columns), "rows": list(rows), "truncated": False}


def remarks(*rows) -> list[str]:
    beside = tuple(one for _, one in beside_steps.read(document(*rows)))
    job = JobRecords("a/b", ROWS, 4, (), live=True, beside=beside)
    asides = diagnosis.diagnosis(job).verdict.asides
    return [aside for aside in asides if aside.startswith("Checkpoints take")]


def test_half_the_time_is_told_with_the_rank_that_saves():
    saves = [span(begin=BEGIN + share * LENGTH, blocked=LENGTH / 10) for share in np.arange(5) / 5]
    (sentence,) = remarks(*saves, span(rank=1, blocked=0.01))
    assert sentence.startswith("Checkpoints take 50% of the time: rank 0 saved 5 times in ")


def test_ranks_that_save_at_once_are_not_added_up():
    saves = [span(rank=rank, blocked=LENGTH / 4) for rank in range(4)]
    (sentence,) = remarks(*saves)
    assert sentence.startswith("Checkpoints take 25% of the time: rank 0 saved 1 times")


@pytest.mark.parametrize(("share", "told"), [(0.099, 0), (0.101, 1)])
def test_a_tenth_of_the_time_is_told(share, told):
    frame = frames.build("a/b", ROWS)
    saved = BesideSteps(0, "checkpoint_save", BEGIN, share * LENGTH)
    assert len(list(checkpoint_share.note(frame, [saved]))) == told


@pytest.mark.parametrize(
    "changes",
    [
        {"blocked": LENGTH / 12},
        {"kind": "evaluation", "blocked": LENGTH},
        {"blocked": None},
        {"begin": BEGIN - 1.0, "blocked": LENGTH},
    ],
    ids=["little", "an evaluation", "beside training", "before the window"],
)
def test_other_time_is_not_told(changes):
    assert remarks(span(**changes)) == []


def test_agents_give_the_spans_of_their_ranks():
    body = json.dumps(document(span(), span(rank=3, job="c/d"), span(rank="x"), span(begin="now")))
    with agent_of([0, 1]) as agent:
        agent.answers["/api/v1/spans"] = body.encode()
        (job,) = agent_steps.from_agents([agent.url], None, 0.0).jobs
    assert [(one.rank, one.kind, one.blocked) for one in job.beside] == [
        (0, "checkpoint_save", 1.0)
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"columns": [], "rows": 3}', b"\xff"])
def test_agents_without_spans_cost_nothing_but_the_remark(body):
    with agent_of([0, 1]) as agent:
        if body:
            agent.answers["/api/v1/spans"] = body
        (job,) = agent_steps.from_agents([agent.url], None, 0.0).jobs
    assert job.beside == ()
    assert len(job.records)
