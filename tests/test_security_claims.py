"""docs/security.md: its claims have tests; nothing foreign is run, swollen answers are given up."""

from __future__ import annotations

import ast
import gzip
import re
from pathlib import Path

import pytest

from rankscope_agent.web.routes import JSON_TYPE, Response, Route, sentence
from rankscope_analyzers.intake import agent_client
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from serving import answering

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "security.md"


def test_every_test_that_the_page_names_exists():
    text = "\n".join(path.read_text() for path in TESTS.glob("test_*.py"))
    have = set(re.findall(r"(?m)^\s*def (test_\w+)\(", text))
    named = re.findall(r"`(test_\w+)`", PAGE.read_text())
    assert len(named) > 20
    assert set(named) <= have


def test_every_row_of_a_threat_names_a_test():
    threats = PAGE.read_text().partition("## Threats")[2]
    rows = [line for line in threats.splitlines() if line.startswith("| ")]
    bare = [row for row in rows if "`test_" not in row and not row.endswith("| test |")]
    assert bare == []


RUNS_CODE = {"pickle", "marshal", "shelve", "dill", "subprocess", "runpy", "code"}


def risky(tree: ast.AST) -> set[str]:
    """Return the names in a module by which foreign text could be run."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names} & RUNS_CODE
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").partition(".")[0]} & RUNS_CODE
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in {"eval", "exec", "os.system", "os.popen", "yaml.load", "torch.load"}:
                found.add(called)
    return found


def test_nothing_in_the_agent_runs_what_others_wrote():
    modules = list((TESTS.parent / "agent" / "rankscope_agent").rglob("*.py"))
    assert len(modules) > 100
    assert {str(m): found for m in modules if (found := risky(ast.parse(m.read_text())))} == {}
    assert risky(ast.parse("import pickle; eval('1')")) == {"pickle", "eval"}


def agent_that_says(answer: Response):
    return answering({"/healthz": Route(lambda _: answer, "open")})


def packed(size: int) -> Response:
    body = gzip.compress(b" " * size)
    return Response(200, JSON_TYPE, body, (("Content-Encoding", "gzip"),))


def test_an_agent_that_swells_its_answer_is_given_up(monkeypatch):
    with agent_that_says(packed(65 << 20)) as url, pytest.raises(AgentError, match="64 MiB"):
        Agent(url).text("/healthz")
    monkeypatch.setattr(agent_client, "WHOLE_ANSWER_SECONDS", 0.0)
    slow = sentence(200, "x" * 1000)
    with agent_that_says(slow) as url, pytest.raises(AgentError, match="has not ended"):
        Agent(url).text("/healthz")
