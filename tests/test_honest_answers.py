"""A partial answer is never a clean bill: what was refused or could not be read is said."""

import http.server
import json
import re
import ssl
import threading
import time

import pytest

from certificates import Authority
from rankscope_agent.contract import api_version
from rankscope_analyzers import cli
from rankscope_analyzers.commands import connection
from rankscope_analyzers.intake.cluster import NodeAgents
from simulated_jobs import Job, records

QUIET = Job(ranks=8, steps=200)


class Agent:
    """The agent of one node with ranks of a healthy job; says no to step records with a status.

    Args:
        node: its node.
        ranks: that are there.
        status: of everything below /api/v1, 200 to answer it.
        token: that opens /api/v1, empty for none.
        version: of its API, None for the one of here.
        tls: secures connections, None for none.
    """

    def __init__(self, node="n0", ranks=range(8), status=200, token="", version=None, tls=None):
        self.node, self.ranks = node, list(ranks)
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.partition("?")[0]
                given = self.headers.get("Authorization") == f"Bearer {token}"
                code = status if path.startswith("/api/v1") and not (token and given) else 200
                body = agent.answer(path) if code == 200 else b"no"
                self.send_response(code)
                if version:
                    self.send_header(api_version.HEADER, version)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def answer(self, path):
        ranks = [{"job_id": "t/j", "rank": n, "world_size": 8, "alive": True} for n in self.ranks]
        if path == "/metrics":
            return self.page().encode()
        if path == "/api/v1/steps":
            rows = records(QUIET)
            rows = rows[rows["rank"].isin(self.ranks)].assign(job_id="t/j", node=self.node)
            return json.dumps(
                {"columns": list(rows.columns), "rows": rows.to_numpy().tolist()}
            ).encode()
        return json.dumps({"node": self.node, "ranks": ranks, "unobserved": {}}).encode()

    def page(self):
        lines = [f"rankscope_snapshot_timestamp_seconds {time.time()}"]
        lines += [
            f'rankscope_rank_info{{job_id="t/j",rank="{rank}",node="{self.node}"}} 1'
            for rank in self.ranks
        ]
        return "\n".join(lines) + "\n"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("rankscope_analyzers.intake.agent_pages.POLL_SECONDS", 0.05)


def diagnosed(capsys, *arguments):
    """Return the exit code, what is on the screen in one line, and the JSON."""
    code = cli.main(["diagnose", *arguments, "--since", "90000d", "--no-color"])
    screen = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    cli.main(["diagnose", *arguments, "--since", "90000d", "--json"])
    return code, screen, json.loads(capsys.readouterr().out)["t/j"]


CLEAN = ("Nothing is known to be wrong", "No straggler", "without the probe")


def test_an_agent_that_refuses_step_records_is_said_with_the_flag_that_helps(capsys):
    with Agent(status=401) as agent:
        code, screen, said = diagnosed(capsys, "--agent", agent.url)
    assert code == 1, "there is no verdict, and one could be had"
    assert "answers 401: give --token-file" in screen
    assert "answers 401: give --token-file" in said["verdict"]["summary"]
    assert said["verdict"]["confidence"] == 0
    assert said["missing"]
    assert not [text for text in CLEAN if text in screen]


def test_a_wrong_token_is_said(capsys, tmp_path):
    (tmp_path / "token").write_text("not-the-one-that-opens-it\n")
    with Agent(status=401, token="the-one-that-opens-it") as agent:
        arguments = ("--agent", agent.url, "--token-file", str(tmp_path / "token"))
        code, screen, said = diagnosed(capsys, *arguments)
        assert code == 1
        assert f"the token of {tmp_path}/token was refused" in said["verdict"]["summary"]
        assert "was refused" in screen
        (tmp_path / "token").write_text("the-one-that-opens-it\n")
        code, screen, _ = diagnosed(capsys, *arguments)
    assert code == 0
    assert "No straggler" in screen


def test_one_of_two_agents_that_refuses_leaves_no_clean_bill(capsys):
    with Agent(ranks=range(4)) as one, Agent("n1", range(4, 8), status=403) as two:
        code, screen, said = diagnosed(capsys, "--agent", one.url, "--agent", two.url)
    assert code == 0, "half of the ranks were judged"
    assert f"{two.url}/api/v1/ranks answers 403" in screen
    assert "No straggler: no rank delays the others." not in screen
    assert "not everything was seen" in said["verdict"]["summary"]


def test_ranks_that_nobody_told_of_leave_no_clean_bill(capsys):
    with Agent(ranks=range(4)) as one:
        _, screen, said = diagnosed(capsys, "--agent", one.url)
    assert "not everything was seen: no records of 4 of 8 ranks" in screen
    assert "not everything was seen" in said["verdict"]["summary"]


def test_a_whole_answer_is_a_clean_bill_still(capsys):
    with Agent() as one:
        code, screen, said = diagnosed(capsys, "--agent", one.url)
    assert code == 0
    assert "No straggler: no rank delays the others." in screen
    assert said["missing"] == []


def test_an_agent_of_a_version_that_cannot_be_read_is_said(capsys):
    with Agent(ranks=range(4)) as one, Agent("n1", range(4, 8), version="99") as two:
        _, screen, said = diagnosed(capsys, "--agent", one.url, "--agent", two.url)
    assert two.url in screen
    assert "not everything was seen" in said["verdict"]["summary"]


def test_a_certificate_that_is_not_trusted_is_said(capsys, tmp_path):
    own, foreign = Authority(tmp_path, "own"), Authority(tmp_path, "foreign")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = foreign.sign("server", "IP:127.0.0.1")
    context.load_cert_chain(pair.cert, pair.key)
    with Agent(tls=context) as agent:
        given = ["diagnose", "--agent", f"https://{agent.url}"]
        assert cli.main([*given, "--ca-file", str(own.cert)]) == 1
        assert "certificate verify failed" in capsys.readouterr().err


def test_credentials_that_cannot_be_used_are_said_in_one_sentence(capsys):
    assert cli.main(["diagnose", "--agent", "127.0.0.1:1", "--cert-file", "x"]) == 1
    assert "--cert-file and --key-file go together" in capsys.readouterr().err


class WithoutRecords(Agent):
    """The agent of a node whose ranks have no probe: it knows of them and has no step records."""

    def answer(self, path):
        if path == "/api/v1/steps":
            columns = list(records(QUIET).columns)
            return json.dumps({"columns": columns, "rows": []}).encode()
        return super().answer(path)


def test_an_agent_that_is_not_there_leaves_no_clean_bill_where_nobody_has_records(capsys):
    with WithoutRecords(ranks=range(4)) as one:
        alone, screen, _ = diagnosed(capsys, "--agent", one.url)
        assert "Nothing is known to be wrong" in screen
        code, screen, said = diagnosed(capsys, "--agent", one.url, "--agent", "127.0.0.1:1")
    assert (alone, code) == (0, 1)
    assert "Nothing is known to be wrong" not in screen
    assert "agent 127.0.0.1:1 cannot be reached" in screen
    assert said["missing"]


def test_a_table_of_jobs_says_which_agents_refused_step_records(capsys):
    with Agent(status=401) as agent:
        assert cli.main(["jobs", "--agent", agent.url, "--no-color"]) == 1
        shown = " ".join(capsys.readouterr().out.split())
        assert cli.main(["jobs", "--agent", agent.url, "--json"]) == 1
    assert "t/j unknown" in shown
    assert "Not seen: step records:" in shown
    assert "answers 401: give --token-file" in shown


BY_PAGES = [("gpus", "--seconds", "2"), ("xids",), ("preflight",)]


@pytest.fixture
def unlisted(monkeypatch):
    """Have the API server list the agents that a test gives, and doubt others."""
    monkeypatch.setattr("rankscope_analyzers.commands.gpus.time.sleep", lambda _: None)

    def put(agents, *doubts):
        listed = NodeAgents(agents, doubts)
        monkeypatch.setattr(connection, "trusted_agents", lambda *_, **_more: listed)

    return put


@pytest.mark.parametrize("command", [*BY_PAGES, ("jobs",), ("diagnose",)])
def test_a_node_whose_agent_is_not_believed_is_said(command, unlisted, capsys):
    with Agent(ranks=()) as agent:
        unlisted({"n0": f"http://{agent.url}"}, "agents of node n1: a, b; none is believed")
        cli.main([*command, "--cluster"])
    printed = capsys.readouterr()
    assert "agents of node n1: a, b" in " ".join((printed.out + printed.err).split())


def test_a_table_of_jobs_says_whose_agents_are_not_believed(unlisted, capsys):
    with Agent(ranks=range(4)) as agent:
        unlisted({"n0": f"http://{agent.url}"}, "agents of node n1: a, b; none is believed")
        assert cli.main(["jobs", "--cluster"]) == 1
        assert "Not seen: agents of node n1: a, b" in capsys.readouterr().out
        assert cli.main(["jobs", "--cluster", "--json"]) == 1
    printed = capsys.readouterr()
    assert list(json.loads(printed.out)) == ["t/j"]
    assert printed.err.startswith("Not seen: agents of node n1: a, b")


@pytest.mark.parametrize("command", [*BY_PAGES, ("jobs",), ("diagnose",)])
def test_a_cluster_without_agents_is_said(command, unlisted, capsys):
    unlisted({})
    assert cli.main([*command, "--cluster"]) == 1
    why = "there is no agent to ask: nothing is labelled rankscope-agent"
    assert capsys.readouterr().err == f"rankscope {command[0]}: {why}\n"


OF_ONE_JOB = [
    ("gpus", "--seconds", "2", "--job", "t/k"),
    ("xids", "--job", "t/k"),
    ("doctor", "t/pod"),
    ("capture", "--kept", "--job", "t/k"),
    ("preflight", "--node", "n9"),
]


@pytest.mark.parametrize("command", OF_ONE_JOB)
def test_a_job_that_is_not_found_may_be_on_a_node_whose_agent_is_silent(
    command, unlisted, capsys, tmp_path
):
    file = (str(tmp_path / "capture.tar.gz"),) * ("capture" in command)
    with Agent() as one:
        assert cli.main([*command, "--agent", one.url, "--agent", "127.0.0.1:1", *file]) == 1
    assert "agent 127.0.0.1:1 cannot be reached" in capsys.readouterr().err


ASKING = [("diagnose",), ("diagnose", "--job", "t/j"), ("jobs",), ("record",)]


@pytest.mark.parametrize("command", ASKING)
def test_an_agent_that_refuses_and_knows_no_job_is_said_with_the_flag_that_helps(
    command, capsys, tmp_path
):
    file = (str(tmp_path / "record.json"),) * (command == ("record",))
    with Agent(ranks=(), status=401) as agent:
        assert cli.main([*command, "--agent", agent.url, *file]) == 1
    said = capsys.readouterr().err
    assert "answers 401: give --token-file" in said
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_an_agent_that_answers_and_knows_no_job_refuses_nothing(capsys):
    with Agent(ranks=()) as agent:
        assert cli.main(["diagnose", "--agent", agent.url]) == 1
    assert "401" not in capsys.readouterr().err
