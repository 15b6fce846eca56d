"""Step records that agents send, and what becomes of agents that send something else."""

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from rankscope_analyzers.intake import agent_steps
from rankscope_analyzers.intake.step_history import StepHistory
from rankscope_analyzers.steps.job_records import SourceError
from simulated_jobs import Job, records

WINDOWS_SECONDS = 900.0


class FakeAgent:
    """An HTTP server that answers like an agent, or wrongly."""

    def __init__(self, answers):
        self.answers = answers

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                path, _, query = self.path.partition("?")
                answer = answers.get(path, b"")
                body = answer(query) if callable(answer) else answer
                self.send_response(200 if path in answers else 404)
                if body[:2] == b"\x1f\x8b":
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def agent_of(ranks, job_id="a/b", world_size=4, compress=False, alive=True, later=0.0):
    rows = records(Job(ranks=4, steps=20)).assign(job_id=job_id)
    rows = rows[rows["rank"].isin(ranks)]
    rows["t_start_unix_seconds"] += later
    identities = [
        {"job_id": job_id, "rank": rank, "world_size": world_size, "alive": alive} for rank in ranks
    ]
    steps = {"columns": list(rows.columns), "rows": rows.to_numpy().tolist(), "truncated": False}
    body = json.dumps(steps).encode()
    return FakeAgent(
        {
            "/api/v1/ranks": json.dumps({"node": "n", "ranks": identities}).encode(),
            "/api/v1/steps": gzip.compress(body) if compress else body,
        }
    )


def test_records_of_several_agents_make_one_job():
    with agent_of([0, 1]) as first, agent_of([2, 3], compress=True) as second:
        (job,) = agent_steps.from_agents([first.url, f"http://{second.url}/"], None, 0.0).jobs
    assert (job.job_id, job.world_size, job.live, job.notes) == ("a/b", 4, True, ())
    assert sorted(job.records["rank"].unique()) == [0, 1, 2, 3]


def with_start(agent, **changes):
    """Let an agent tell the first records of its ranks; changed where a test says so."""
    said = json.loads(agent.answers["/api/v1/steps"])
    said["rows"] = said["rows"][:6]
    agent.answers["/api/v1/step_starts"] = json.dumps(said | changes).encode()
    return agent


def test_the_first_records_of_a_job_are_asked_for_at_the_first_look_alone():
    history = StepHistory()
    with agent_of([0, 1]) as first, agent_of([2, 3]) as second:
        agents = [with_start(first).url, with_start(second).url]
        (job,) = agent_steps.from_agents(agents, None, 0.0, history=history).jobs
        (again,) = agent_steps.from_agents(agents, None, 0.0, history=history).jobs
    assert sorted(job.start["rank"].unique()) == [0, 1, 2, 3]
    assert len(job.start) == 12
    assert "agent" not in job.start.columns
    assert again.start is None


@pytest.mark.parametrize("said", [{}, {"rows": 7}, {"columns": ["rank"]}])
def test_an_agent_that_has_no_first_records_costs_nothing(said):
    with agent_of([0, 1, 2, 3]) as agent:
        if said:
            with_start(agent, **said)
        (job,) = agent_steps.from_agents([agent.url], None, 0.0).jobs
    assert (job.start, len(job.records), job.notes) == (None, 80, ())


@pytest.mark.parametrize("alive", [True, False])
def test_a_job_that_shrank_has_the_size_of_its_last_ranks(alive):
    with (
        agent_of([2, 3], world_size=4, alive=False) as gone,
        agent_of([0, 1], world_size=2, alive=alive, later=60.0) as kept,
    ):
        (job,) = agent_steps.from_agents([gone.url, kept.url], None, 0.0).jobs
    assert job.world_size == 2


@pytest.mark.parametrize("size", [10**12, -1, 0, "8", None])
def test_sizes_that_no_job_has_are_not_believed(size):
    with agent_of([0, 1], world_size=size) as agent:
        (job,) = agent_steps.from_agents([agent.url], None, 0.0).jobs
    assert job.world_size is None


def test_an_unreachable_agent_is_a_note_while_another_answers():
    with agent_of([0, 1]) as agent:
        (job,) = agent_steps.from_agents([agent.url, "127.0.0.1:1"], None, 0.0).jobs
    assert len(job.notes) == 1
    assert job.notes[0].startswith("agent 127.0.0.1:1 cannot be reached: ")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("127.0.0.1:1", "cannot be reached"),
        ("file:///etc/passwd", "not the http address of an agent"),
        ("http://", "not the http address|cannot be reached"),
        ("127.0.0.1:port", "not the http address|does not answer|cannot be reached"),
    ],
)
def test_no_answer_at_all_is_an_error_in_one_sentence(url, complaint):
    with pytest.raises(SourceError, match=complaint):
        agent_steps.from_agents([url], None, 0.0)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"rows": []}', b'{"columns": 3, "rows": 4}'])
def test_something_else_at_the_address_is_said(body):
    answers = {"/api/v1/ranks": b'{"ranks": []}', "/api/v1/steps": body}
    with FakeAgent(answers) as agent, pytest.raises(SourceError, match="does not answer like"):
        agent_steps.from_agents([agent.url], None, 0.0)


def twice(rows):
    return rows.assign(again=rows["t_start_unix_seconds"]).rename(
        columns={"again": "t_start_unix_seconds"}
    )


def of_no_rank(rows):
    return rows.drop(columns="rank")


def of_no_job(rows):
    return rows.drop(columns="job_id")


def made_of_lists(rows):
    return rows.assign(rank=[[0]] * len(rows))


@pytest.mark.parametrize("odd", [twice, of_no_rank, of_no_job, made_of_lists])
@pytest.mark.parametrize("alone", [True, False])
def test_records_that_no_agent_sends_cost_no_other_agent_its_own(odd, alone):
    rows = odd(records(Job(ranks=4, steps=20)).assign(job_id="a/b"))
    sent = {"columns": list(rows.columns), "rows": rows.to_numpy().tolist(), "truncated": False}
    answers = {"/api/v1/ranks": b'{"ranks": []}', "/api/v1/steps": json.dumps(sent).encode()}
    with FakeAgent(answers) as agent, agent_of([0, 1]) as good:
        if alone:
            with pytest.raises(SourceError, match="does not answer like a rankscope agent"):
                agent_steps.from_agents([agent.url], None, 0.0)
            return
        (job,) = agent_steps.from_agents([agent.url, good.url], None, 0.0).jobs
    assert sorted(job.records["rank"].unique()) == [0, 1]
    assert agent.url in job.notes[0]


def test_an_agent_on_whose_answer_something_raises_costs_no_other_its_own(monkeypatch):
    real = agent_steps.step_answer

    def odd(url, since, said):
        if url == bad.url:
            raise AttributeError("no attribute 'rows'")
        return real(url, since, said)

    monkeypatch.setattr(agent_steps, "step_answer", odd)
    with agent_of([2, 3]) as bad, agent_of([0, 1]) as good:
        read = agent_steps.from_agents([bad.url, good.url], None, 0.0)
        with pytest.raises(SourceError, match="AttributeError") as raised:
            agent_steps.from_agents([bad.url], None, 0.0)
    assert sorted(read.jobs[0].records["rank"].unique()) == [0, 1]
    assert [(one.part, one.about) for one in read.errors] == [("source", bad.url)]
    assert raised.value.errors[0].about == bad.url


def test_an_agent_that_leaves_records_out_is_asked_for_a_shorter_time():
    rows = records(Job(ranks=2, steps=400)).assign(job_id="a/b")

    def steps(query):
        asked = rows[rows["t_start_unix_seconds"] >= float(parse_qs(query)["since"][0])]
        sent = {"columns": list(rows.columns), "rows": asked[:300].to_numpy().tolist()}
        return json.dumps(sent | {"truncated": len(asked) > 300}).encode()

    with FakeAgent({"/api/v1/ranks": b'{"ranks": []}', "/api/v1/steps": steps}) as agent:
        (job,) = agent_steps.from_agents([agent.url], None, 0.0).jobs
    assert job.records["step"].max() == 399
    assert sorted(job.records["rank"].unique()) == [0, 1]


def test_an_agent_that_always_leaves_records_out_is_not_asked_for_ever():
    rows = records(Job(ranks=2, steps=5)).assign(job_id="a/b")
    body = {"columns": list(rows.columns), "rows": rows.to_numpy().tolist(), "truncated": True}
    answers = {"/api/v1/ranks": b'{"ranks": []}', "/api/v1/steps": json.dumps(body).encode()}
    with FakeAgent(answers) as agent, pytest.raises(SourceError, match="more than 10 records"):
        agent_steps.from_agents([agent.url], None, 0.0)


def test_an_agent_without_records_asks_for_the_probe():
    answers = {
        "/api/v1/ranks": b'{"ranks": []}',
        "/api/v1/steps": b'{"columns": ["job_id"], "rows": []}',
    }
    with FakeAgent(answers) as agent, pytest.raises(SourceError, match="is the probe injected"):
        agent_steps.from_agents([agent.url], "x/y", 0.0)


def blind_agent(collectives):
    rows = records(Job(ranks=2, steps=2000)).assign(job_id="a/b", sync_seconds=None)
    sent = {"columns": list(rows.columns), "rows": rows.to_numpy().tolist(), "truncated": False}
    answers = {"/api/v1/ranks": b'{"ranks": []}', "/api/v1/steps": json.dumps(sent).encode()}
    return FakeAgent(answers | {"/api/v1/collectives": collectives}), rows


def test_windows_of_collectives_are_fetched_where_sync_is_unknown_not_too_far_back():
    asked = []

    def collectives(query):
        asked.append(parse_qs(query))
        windows = [{"job_id": "a/b", "rank": 1}, {"job_id": "c/d", "rank": 0}, 7]
        return json.dumps({"node": "n", "windows": windows}).encode()

    fake, rows = blind_agent(collectives)
    with fake as agent:
        (job,) = agent_steps.from_agents([agent.url], "a/b", 0.0).jobs
    assert job.windows == ({"job_id": "a/b", "rank": 1},)
    assert asked[0]["job"] == ["a/b"]
    back = rows["t_start_unix_seconds"].max() - float(asked[0]["since"][0])
    assert back == pytest.approx(WINDOWS_SECONDS)


def test_no_windows_are_fetched_where_sync_is_known():
    with agent_of([0, 1]) as agent:  # it would break off without an answer to that
        (job,) = agent_steps.from_agents([agent.url], None, 0.0).jobs
    assert (job.windows, job.notes) == ((), ())


@pytest.mark.parametrize("body", [b"", b"{}", b'{"windows": 3}', b"[", b"<html>"])
def test_windows_that_do_not_come_cost_no_records(body):
    fake, rows = blind_agent(body)
    with fake as agent:
        (job,) = agent_steps.from_agents([agent.url], None, 0.0).jobs
    assert (job.windows, job.notes, len(job.records)) == ((), (), len(rows))


def test_a_look_without_new_steps_has_its_windows_all_the_same():
    """Else what only they tell would come and go from look to look."""
    fake, _ = blind_agent(json.dumps({"windows": [{"job_id": "a/b", "rank": 1}]}).encode())
    history = StepHistory()
    with fake as agent:
        for _ in range(3):
            (job,) = agent_steps.from_agents([agent.url], None, 0.0, history=history).jobs
            assert job.windows == ({"job_id": "a/b", "rank": 1},)
            assert not job.notes


def test_the_less_time_there_is_the_shorter_are_the_windows_and_none_are_said_to_be_none():
    asked = []

    def collectives(query):
        asked.append(float(parse_qs(query)["since"][0]))
        return b'{"windows": []}'

    fake, rows = blind_agent(collectives)
    newest = rows["t_start_unix_seconds"].max()
    with fake as agent:
        for patience in (0.1, 0.01):
            (job,) = agent_steps.from_agents(
                [agent.url], None, 0.0, comparison_seconds=patience
            ).jobs
    assert [newest - since for since in asked] == [pytest.approx(300.0)]
    assert job.notes[0].startswith("windows of collectives of 1 nodes, which are more")
