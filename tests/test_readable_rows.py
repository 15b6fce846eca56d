"""A row of an agent's answer that cannot be read costs itself alone, and is counted and said."""

from __future__ import annotations

import contextlib
import json
import urllib.request

import numpy as np
import pytest

from rankscope_agent.contract import step_blocks as form
from rankscope_agent.web.routes import JSON_TYPE, Response, Route
from rankscope_analyzers.intake import agent_steps
from rankscope_analyzers.intake.credentials import NONE
from rankscope_analyzers.intake.readable_rows import sentences
from rankscope_analyzers.intake.step_columns import parsed
from rankscope_analyzers.intake.step_history import step_answer
from rankscope_analyzers.intake.step_stream import StepStream
from ring_writer import RingWriter
from running_agent import running_agent
from serving import answering

JOB, OTHER = "team/job", "team/other"
STEPS, RANKS = 5, 3
URL = "http://n1:9877"
NOW = 1_700_000_100.0
"""A hundred seconds after rings of tests begin."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """What a real agent answers about three ranks of one job and one of another."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "rings").mkdir()
    with contextlib.ExitStack() as stack:
        for rank in range(RANKS + 1):
            job = JOB if rank < RANKS else OTHER
            of = {"rank": rank, "job_id": job, "pid": 100 + rank}
            ring = RingWriter(folder / "rings", f"{100 + rank}-99.ring", **of)
            stack.callback(ring.end)
            ring.step(STEPS)
        agent = stack.enter_context(running_agent(folder))
        return {
            "json": asked(f"{agent.url}/api/v1/steps", JSON_TYPE),
            "blocks": asked(f"{agent.url}/api/v1/steps", form.MEDIA_TYPE),
            "ranks": asked(f"{agent.url}/api/v1/ranks", JSON_TYPE),
        }


def asked(url, accept):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read()


def damaged_json(served, column, value, at=0):
    """Return the JSON of an agent in which one value of one row is another."""
    document = json.loads(served["json"])
    document["rows"][at][document["columns"].index(column)] = value
    return document


def damaged_blocks(served, **changes):
    """Return the blocks of an agent whose ring of rank 0 says something else."""
    whole = served["blocks"]
    end = form.HEAD.size + form.HEAD.unpack_from(whole)[3]
    head = json.loads(whole[form.HEAD.size : end])
    (ring,) = (one for one in head["rings"] if one["rank"] == 0)
    ring.update(changes)
    text = json.dumps(head).encode()
    return form.HEAD.pack(form.MAGIC, form.VERSION, 0, len(text)) + text + whole[end:]


UNREADABLE = [
    ("rank", "0x", JOB),
    ("rank", None, JOB),
    ("rank", 1.5, JOB),
    ("rank", -1, JOB),
    ("rank", 1_048_576, JOB),
    ("rank", True, JOB),
    ("job_id", None, ""),
    ("job_id", 7, ""),
    ("job_id", "team/\ud800", ""),
    ("node", "\ud800", JOB),
]


@pytest.mark.parametrize(("column", "value", "job"), [*UNREADABLE, ("step", {}, JOB)])
def test_one_unreadable_row_of_json_costs_itself_alone(served, column, value, job):
    whole = step_answer(URL, 0.0, json.loads(served["json"]))
    assert (len(whole.rows), whole.unread) == ((RANKS + 1) * STEPS, {})
    answer = step_answer(URL, 0.0, damaged_json(served, column, value))
    assert answer.rows == whole.rows[1:]
    assert answer.unread == {job: 1}


@pytest.mark.parametrize("row", [[], ["team/job"], "row", None, {}])
def test_a_row_that_is_none_costs_itself_alone(served, row):
    document = json.loads(served["json"])
    document["rows"][3] = row
    answer = step_answer(URL, 0.0, document)
    assert (len(answer.rows), answer.unread) == ((RANKS + 1) * STEPS - 1, {"": 1})


@pytest.mark.parametrize(("member", "value", "job"), UNREADABLE)
def test_an_unreadable_ring_costs_its_own_rows_alone(served, member, value, job):
    whole, columns = parsed(served["blocks"]), parsed(damaged_blocks(served, **{member: value}))
    assert [ring.rank["rank"] for ring in columns.rings] == [1, 2, 3]
    ranks = [columns.rings[place].rank["rank"] for place in columns.ring]
    assert sorted(ranks) == [rank for rank in (1, 2, 3) for _ in range(STEPS)]
    kept = [whole.rings[place].rank["rank"] != 0 for place in whole.ring]
    assert columns.numbers["step"].tolist() == whole.numbers["step"][kept].tolist()
    assert columns.unread == {job: STEPS}
    assert len(columns.next_numbers) == RANKS
    ((name, number),) = columns.unread_next.items()
    (place,) = (n for n, ring in enumerate(whole.rings) if ring.rank["rank"] == 0)
    assert (name, number) == (whole.rings[place].name, whole.next_numbers[place])


@pytest.mark.parametrize("ring", [4.0, -1.0, 0.5, float("nan")])
def test_a_row_of_no_ring_costs_itself_alone(served, ring):
    whole = bytearray(served["blocks"])
    at = form.HEAD.size + form.HEAD.unpack_from(whole)[3] + form.BLOCK.size
    whole[at : at + 8] = np.array([ring], "<f8").tobytes()
    columns = parsed(bytes(whole))
    assert (len(columns), columns.unread) == ((RANKS + 1) * STEPS - 1, {"": 1})


def agent_of(served, steps, kind):
    """Answer like an agent, with these steps."""
    other = Response(404, JSON_TYPE, [b"{}"])
    return answering(
        {
            "/api/v1/ranks": Route(lambda _: Response(200, JSON_TYPE, [served["ranks"]]), "open"),
            "/api/v1/steps": Route(lambda _: Response(200, kind, [steps]), "open"),
            "/api/v1/step_starts": Route(lambda _: other, "open"),
            "/api/v1/spans": Route(lambda _: other, "open"),
        }
    )


def notes_about_rows(read):
    return {
        job.job_id: [note for note in job.notes if "could not be read" in note] for job in read.jobs
    }


def test_diagnose_counts_unreadable_rows_for_their_job(served):
    sent = json.dumps(damaged_json(served, "rank", "0x")).encode()
    with agent_of(served, sent, JSON_TYPE) as url:
        read = agent_steps.from_agents([url], None, 0.0)
        assert notes_about_rows(read) == {
            JOB: [f"1 row of agent {url} could not be read"],
            OTHER: [],
        }
    assert {job.job_id: len(job.records) for job in read.jobs} == {JOB: 14, OTHER: 5}


def test_diagnose_counts_rows_of_no_known_job_for_all(served):
    sent = json.dumps(damaged_json(served, "job_id", 7)).encode()
    with agent_of(served, sent, JSON_TYPE) as url:
        read = agent_steps.from_agents([url], None, 0.0)
        told = [f"1 row of agent {url} could not be read"]
        assert notes_about_rows(read) == {JOB: told, OTHER: told}


@pytest.mark.parametrize("kind", [JSON_TYPE, form.MEDIA_TYPE])
def test_a_watch_counts_unreadable_rows_and_goes_on_behind_them(served, kind):
    blocks = kind == form.MEDIA_TYPE
    document = damaged_json(served, "rank", "0x")
    sent = damaged_blocks(served, rank="0x") if blocks else json.dumps(document).encode()
    lost = STEPS if blocks else 1
    stream = StepStream(NONE, 1800.0)
    try:
        with agent_of(served, sent, kind) as url:
            assert stream.look([url], NOW, 20.0).answered == 1
        assert stream.failures == []
        assert len(stream.windows.of(JOB).records()) == RANKS * STEPS - lost
        assert len(stream.windows.of(OTHER).records()) == STEPS
        assert stream.unread == [(url, {JOB: lost})]
        rows = f"{lost} rows" if blocks else "1 row"
        assert sentences(stream.unread, JOB) == [f"{rows} of agent {url} could not be read"]
        assert sentences(stream.unread, OTHER) == []
        assert not blocks or len(stream.agents[url].cursors) == RANKS + 1
    finally:
        stream.connections.close()
