"""An agent that no client can read step records from says so, and so does every command."""

from __future__ import annotations

import re

import pytest

from node_with_agent import eventually, ready
from rankscope_agent.contract.address import parse_listen_address
from rankscope_agent.web.access import AccessSettings, Guard
from rankscope_analyzers import cli
from rankscope_analyzers.commands import demo_tour
from running_agent import running_agent

JOB = "nobody/has-this-job"
REMEDY = "start it with --web.token-file FILE, or with --web.listen-address=localhost:9877"


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    with running_agent(tmp_path_factory.mktemp("agent"), "--web.listen-address=0.0.0.0:0") as made:
        yield made


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("rankscope_analyzers.intake.agent_pages.POLL_SECONDS", 0.05)


def printed(capsys, *arguments):
    """Return the exit code and all that is printed, in one line."""
    code = cli.main([*arguments])
    return code, re.sub(r"\s+", " ", "".join(capsys.readouterr()))


def test_it_warns_at_its_start(agent):
    assert eventually(lambda: "no client can read" in agent.log.read_text())
    (line,) = [one for one in agent.log.read_text().splitlines() if "no client can read" in one]
    assert "level=warning" in line
    assert "--web.token-file" in line


@pytest.mark.parametrize(
    ("settings", "loopback", "closed"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"insecure_api": True}, False, False),
        ({"token_file": "tokens"}, False, False),
    ],
)
def test_it_warns_only_if_there_is_no_way_in(settings, loopback, closed, tmp_path):
    if "token_file" in settings:
        settings = {"token_file": tmp_path / "tokens"}
        settings["token_file"].write_text("correct-horse-battery-staple\n")
    assert Guard(AccessSettings(**settings)).closes_api(loopback=loopback) is closed


def test_doctor_shows_what_the_open_pages_show_and_what_to_do(agent, capsys):
    assert eventually(lambda: ready(agent))
    code, said = printed(capsys, "doctor", "--no-color", "--agent", agent.url)
    assert code == 0
    assert REMEDY in said
    assert "node test-node" in said
    assert "seen host its last run succeeded" in said
    assert "0 pods" not in said


def test_doctor_does_not_call_a_pod_missing_that_it_may_not_see(agent, capsys):
    code, said = printed(capsys, "doctor", "w0", "--agent", agent.url)
    assert code == 1
    assert REMEDY in said
    assert "no pod" not in said


@pytest.mark.parametrize(
    "command", [("verify", JOB), ("capture", "--job", JOB, "c.tgz"), ("watch", "--once")]
)
def test_a_command_that_misses_a_job_names_the_refusal(command, agent, capsys, tmp_path):
    command = [str(tmp_path / one) if one == "c.tgz" else one for one in command]
    code, said = printed(capsys, *command, "--agent", agent.url)
    assert code == 1
    assert REMEDY in said


def test_the_tour_ends_with_commands_for_an_agent_that_answers_them():
    (listen,) = re.findall(r"--web\.listen-address=(\S+)", demo_tour.NEXT)
    assert f"rankscope diagnose --agent {listen}\n" in demo_tour.NEXT
    assert parse_listen_address(listen).host == "localhost"
