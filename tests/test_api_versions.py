"""Agents and readers of their answers, one version apart and further."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
import urllib.request
from pathlib import Path

import pytest

from rankscope_agent.contract.api_version import (
    API_VERSION,
    HEADER,
    UNSTATED,
    mismatch,
    stated_version,
)
from rankscope_agent.web.routes import JSON_TYPE, Response, Route
from rankscope_analyzers.arguments import watch as watch_options
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_steps import from_agents
from ring_writer import RingWriter
from running_agent import PATIENCE_SECONDS, running_agent
from serving import answering

CAPTURED = Path(__file__).parent / "fixtures" / "agent_before_versions"
"""What an agent answered that did not yet state a version: rank 2 of 4 computes twice as long."""

MEMBERS = {
    "/healthz": {"status", "node", "version", "api_version", "collectors", "unobserved"},
    "/api/v1/ranks": {"node", "ranks"},
    "/api/v1/pods": {"node", "pods", "ranks", "problems"},
    "/api/v1/steps": {"node", "columns", "rows", "truncated"},
    "/api/v1/collectives": {"node", "windows"},
    "/api/v1/stalls": {"node", "stalls"},
    "/api/v1/hangs": {"node", "hangs"},
}
COLUMNS = {
    *("job_id", "step", "rank", "node", "gpu", "t_start_unix_seconds", "step_seconds"),
    *("data_seconds", "compute_seconds", "sync_seconds", "dp_group", "tp_group", "pp_stage"),
    *("attempt", "samples", "flags", "timing_source"),
}
RANK = {
    *("job_id", "rank", "node", "local_rank", "world_size", "local_world_size", "attempt"),
    *("timing_source", "launcher", "pod_uid", "pid", "alive", "dp_group", "tp_group", "pp_stage"),
}
"""Version 1, by name. What goes from here takes a new API_VERSION, and stays for the one before."""


def agent_of(answers: dict[str, bytes], version: str | None):
    """Serve answers as an agent of that version does."""
    headers = () if version is None else ((HEADER, version),)
    routes = {
        path: Route(lambda _, body=body: Response(200, JSON_TYPE, body, headers), "open")
        for path, body in answers.items()
    }
    return answering(routes)


def captured() -> dict[str, bytes]:
    return {
        "/healthz": (CAPTURED / "healthz.json").read_bytes(),
        "/api/v1/ranks": (CAPTURED / "ranks.json").read_bytes(),
        "/api/v1/steps": (CAPTURED / "steps.json").read_bytes(),
        "/metrics": (CAPTURED / "metrics.txt").read_bytes(),
    }


def older() -> dict[str, bytes]:
    """Return the answers without what was added after the first agents that had step records."""
    answers = captured()
    steps, ranks = json.loads(answers["/api/v1/steps"]), json.loads(answers["/api/v1/ranks"])
    added = ("dp_group", "tp_group", "pp_stage", "attempt", "samples", "flags")
    kept = [n for n, name in enumerate(steps["columns"]) if name not in added]
    steps["columns"] = [steps["columns"][n] for n in kept]
    steps["rows"] = [[row[n] for n in kept] for row in steps["rows"]]
    for rank in ranks["ranks"]:
        for name in added:
            rank.pop(name, None)
    return encoded(answers, steps, ranks)


def newer() -> dict[str, bytes]:
    """Return the answers with more in them than this version knows, in every place for more."""
    answers = captured()
    steps, ranks = json.loads(answers["/api/v1/steps"]), json.loads(answers["/api/v1/ranks"])
    health = json.loads(answers["/healthz"])
    steps["columns"] = ["temperature", *steps["columns"], "phase"]
    steps["rows"] = [[300.5, *row, {"name": "warm-up"}] for row in steps["rows"]]
    steps["more"] = ranks["more"] = health["more"] = [1, {"x": None}]
    for rank in ranks["ranks"]:
        rank["accelerator"] = {"kind": "gpu"}
    health["collectors"]["telepathy"] = {"success": True, "since": "ever"}
    page = answers["/metrics"].decode()
    page = page.replace('version="0.1.0"', 'codename="next",version="0.2.0"')
    page += '# TYPE rankscope_telepathy_info gauge\nrankscope_telepathy_info{rank="2"} 1\n'
    return encoded(answers, steps, ranks, **{"/healthz": health}) | {"/metrics": page.encode()}


def encoded(answers, steps, ranks, **more) -> dict[str, bytes]:
    documents = {"/api/v1/steps": steps, "/api/v1/ranks": ranks, **more}
    return answers | {path: json.dumps(document).encode() for path, document in documents.items()}


ONE_APART = {
    "before versions": (captured, None),
    "without what came later": (older, str(API_VERSION - 1)),
    "this version": (captured, str(API_VERSION)),
    "the next version": (newer, str(API_VERSION + 1)),
}


@pytest.mark.parametrize("name", ONE_APART)
def test_agents_of_the_version_before_and_after_are_understood(name, capsys, monkeypatch):
    monkeypatch.setattr("rankscope_analyzers.intake.agent_pages.POLL_SECONDS", 0.05)
    answers, version = ONE_APART[name]
    with agent_of(answers(), version) as url:
        (job,) = from_agents([url], None, 0.0).jobs
        parser = argparse.ArgumentParser()
        watch_options.add_arguments(parser)
        options = parser.parse_args(["--agent", url, "--once", "--since", "90000d"])
        assert watch_command.run(options) == 0
    assert job.world_size == 4
    page = capsys.readouterr().out
    culprit = next(line for line in page.splitlines() if line.startswith("rankscope_finding_culp"))
    assert 'job_id="team/job"' in culprit
    assert 'rank="2"' in culprit


def test_agents_further_apart_are_named_with_what_is_to_be_updated():
    with agent_of(captured(), str(API_VERSION + 2)) as url:
        expected = f"agent {url} answers in version {API_VERSION + 2}.*: update rankscope here"
        with pytest.raises(AgentError, match=expected):
            Agent(url).json("/api/v1/ranks")
    assert stated_version(None) == 0
    assert stated_version("9" * 6) == 999_999
    assert mismatch(UNSTATED, ours=1) == ""
    assert mismatch(UNSTATED, ours=2).endswith("this rankscope reads 1 to 3: update the agent")
    assert [mismatch(theirs, ours=4) == "" for theirs in range(7)] == [
        *(False, False, False),
        *(True, True, True),
        False,
    ]


@pytest.mark.parametrize("text", ["", "one", "-1", "1.0", "9" * 7, "\u0661", " 1"])
def test_what_is_no_version_is_no_agent(text):
    with pytest.raises(ValueError, match=HEADER):
        stated_version(text)
    if text.strip() == text and text.isascii():
        with agent_of(captured(), text) as url, pytest.raises(AgentError, match="does not answer"):
            Agent(url).text("/metrics")


def wait_until_ready(agent) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # 503 before the first runs have ended
            agent.get("/readyz")
            return
        time.sleep(0.05)
    raise AssertionError("the agent was never ready")


def test_an_agent_states_its_version_in_every_answer_and_has_everything_of_it(tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir()
    writer = RingWriter(rings)
    writer.step(8)
    with running_agent(tmp_path) as agent:
        wait_until_ready(agent)
        answers = {path: Agent(agent.url).json(path) for path in MEMBERS}
        for path in (*MEMBERS, "/metrics", "/readyz", "/"):
            with urllib.request.urlopen(agent.url + path, timeout=PATIENCE_SECONDS) as answer:
                assert answer.headers[HEADER] == str(API_VERSION), path
    writer.end()
    assert {path: MEMBERS[path] - set(answer) for path, answer in answers.items()} == {
        path: set() for path in MEMBERS
    }
    assert answers["/healthz"]["api_version"] == API_VERSION
    assert set(answers["/api/v1/steps"]["columns"]) >= COLUMNS
    assert all(set(rank) >= RANK for rank in answers["/api/v1/ranks"]["ranks"])
    assert answers["/api/v1/ranks"]["ranks"]
