import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import numpy as np
import pytest

from rankscope_analyzers import sources
from rankscope_analyzers.sources import SourceError
from simulated_jobs import Job, records


def write_trace(folder, rows, name="records.csv", **meta):
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"format_version": 1, "job": "j", **meta}))
    if name == "records.npz":
        columns = rows.assign(node=rows["node"].str[-5:].astype(int))
        np.savez(folder / name, **{key: columns[key].to_numpy() for key in columns})
    elif name == "records.parquet":
        rows.to_parquet(folder / name)
    else:
        rows.to_csv(folder / name, index=False)
    return folder


@pytest.mark.parametrize("name", list(sources.RECORD_READERS))
def test_every_form_of_a_trace_gives_the_same_durations(tmp_path, name):
    rows = records(Job(ranks=4, steps=20))
    (job,) = sources.from_traces([write_trace(tmp_path / "t", rows, name, world_size=4)])
    assert (job.job_id, job.world_size, job.live) == ("j", 4, False)
    np.testing.assert_allclose(job.records["compute_seconds"], rows["compute_seconds"])


def test_a_directory_of_traces_is_read_job_by_job(tmp_path):
    for name in ("one", "two"):
        write_trace(tmp_path / name, records(Job(ranks=2, steps=5)), job=name)
    assert [job.job_id for job in sources.from_traces([tmp_path])] == ["one", "two"]


def test_two_traces_of_one_name_are_refused(tmp_path):
    for name in ("one", "two"):
        write_trace(tmp_path / name, records(Job(ranks=2, steps=5)))
    with pytest.raises(SourceError, match="both hold job j"):
        sources.from_traces([tmp_path])


def test_a_trace_without_metadata_is_named_after_its_folder(tmp_path):
    folder = write_trace(tmp_path / "run7", records(Job(ranks=2, steps=5)))
    (folder / "meta.json").unlink()
    assert sources.from_traces([folder])[0].job_id == "run7"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("records.csv", b"", "cannot be read as step records"),
        ("records.csv", b"step,rank\n", "holds no step records"),
        ("records.csv.gz", b"not gzip", "cannot be read as step records"),
        ("records.csv.gz", gzip.compress(b"step,rank\n1,2\n", mtime=0)[:-9], "cannot be read"),
        ("records.npz", b"PK\x03\x04 broken", "cannot be read as step records"),
        ("records.parquet", b"PAR1", "cannot be read as step records"),
    ],
)
def test_a_broken_record_file_is_named(tmp_path, name, content, complaint):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=complaint) as raised:
        sources.from_traces([tmp_path])
    assert str(tmp_path / name) in str(raised.value)


@pytest.mark.parametrize("meta", ["{", "[]", '{"format_version": 2}'])
def test_broken_metadata_is_named(tmp_path, meta):
    folder = write_trace(tmp_path / "t", records(Job(ranks=2, steps=5)))
    (folder / "meta.json").write_text(meta)
    with pytest.raises(SourceError, match=r"meta\.json"):
        sources.from_traces([folder])


def test_a_folder_without_traces_says_what_was_expected(tmp_path):
    with pytest.raises(SourceError, match=r"holds no trace: expected one of .*records\.npz"):
        sources.from_traces([tmp_path])
    with pytest.raises(SourceError, match="is not a directory"):
        sources.from_traces([tmp_path / "absent"])


class FakeAgent:
    """An HTTP server that answers like an agent, or wrongly."""

    def __init__(self, answers):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                path, _, query = self.path.partition("?")
                answer = answers[path]
                body = answer(query) if callable(answer) else answer
                self.send_response(200)
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
        (job,) = sources.from_agents([first.url, f"http://{second.url}/"], None, 0.0)
    assert (job.job_id, job.world_size, job.live, job.notes) == ("a/b", 4, True, ())
    assert sorted(job.records["rank"].unique()) == [0, 1, 2, 3]


@pytest.mark.parametrize("alive", [True, False])
def test_a_job_that_shrank_has_the_size_of_its_last_ranks(alive):
    with (
        agent_of([2, 3], world_size=4, alive=False) as gone,
        agent_of([0, 1], world_size=2, alive=alive, later=60.0) as kept,
    ):
        (job,) = sources.from_agents([gone.url, kept.url], None, 0.0)
    assert job.world_size == 2


def test_an_unreachable_agent_is_a_note_while_another_answers():
    with agent_of([0, 1]) as agent:
        (job,) = sources.from_agents([agent.url, "127.0.0.1:1"], None, 0.0)
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
        sources.from_agents([url], None, 0.0)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"rows": []}', b'{"columns": 3, "rows": 4}'])
def test_something_else_at_the_address_is_said(body):
    answers = {"/api/v1/ranks": b'{"ranks": []}', "/api/v1/steps": body}
    with FakeAgent(answers) as agent, pytest.raises(SourceError, match="does not answer like"):
        sources.from_agents([agent.url], None, 0.0)


def test_an_agent_that_leaves_records_out_is_asked_for_a_shorter_time():
    rows = records(Job(ranks=2, steps=400)).assign(job_id="a/b")

    def steps(query):
        asked = rows[rows["t_start_unix_seconds"] >= float(parse_qs(query)["since"][0])]
        sent = {"columns": list(rows.columns), "rows": asked[:300].to_numpy().tolist()}
        return json.dumps(sent | {"truncated": len(asked) > 300}).encode()

    with FakeAgent({"/api/v1/ranks": b'{"ranks": []}', "/api/v1/steps": steps}) as agent:
        (job,) = sources.from_agents([agent.url], None, 0.0)
    assert job.records["step"].max() == 399
    assert sorted(job.records["rank"].unique()) == [0, 1]


def test_an_agent_that_always_leaves_records_out_is_not_asked_for_ever():
    rows = records(Job(ranks=2, steps=5)).assign(job_id="a/b")
    body = {"columns": list(rows.columns), "rows": rows.to_numpy().tolist(), "truncated": True}
    answers = {"/api/v1/ranks": b'{"ranks": []}', "/api/v1/steps": json.dumps(body).encode()}
    with FakeAgent(answers) as agent, pytest.raises(SourceError, match="more than 10 records"):
        sources.from_agents([agent.url], None, 0.0)


def test_an_agent_without_records_asks_for_the_probe():
    answers = {
        "/api/v1/ranks": b'{"ranks": []}',
        "/api/v1/steps": b'{"columns": ["job_id"], "rows": []}',
    }
    with FakeAgent(answers) as agent, pytest.raises(SourceError, match="is the probe injected"):
        sources.from_agents([agent.url], "x/y", 0.0)


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
        (job,) = sources.from_agents([agent.url], "a/b", 0.0)
    assert job.windows == ({"job_id": "a/b", "rank": 1},)
    assert asked[0]["job"] == ["a/b"]
    back = rows["t_start_unix_seconds"].max() - float(asked[0]["since"][0])
    assert back == pytest.approx(sources.WINDOWS_SECONDS)


def test_no_windows_are_fetched_where_sync_is_known():
    with agent_of([0, 1]) as agent:  # it would break off without an answer to that
        (job,) = sources.from_agents([agent.url], None, 0.0)
    assert (job.windows, job.notes) == ((), ())


@pytest.mark.parametrize("body", [b"", b"{}", b'{"windows": 3}', b"[", b"<html>"])
def test_windows_that_do_not_come_cost_no_records(body):
    fake, rows = blind_agent(body)
    with fake as agent:
        (job,) = sources.from_agents([agent.url], None, 0.0)
    assert (job.windows, job.notes, len(job.records)) == ((), (), len(rows))
