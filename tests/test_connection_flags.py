"""Every command that asks agents or Prometheus takes the same flags for it, from one place."""

import argparse
import json
from pathlib import Path

import pytest

import rankscope_analyzers.arguments
from rankscope_analyzers import cli
from rankscope_analyzers.commands import connection
from rankscope_analyzers.intake.cluster import ClusterAccess, ClusterError, NodeAgents
from test_honest_answers import Agent

FOLDER = Path(rankscope_analyzers.arguments.__file__).parent

REST = {
    "diagnose": (),
    "capture": ("--job", "j", "c.tar.gz"),
    "watch": ("--once",),
    "record": ("out.json",),
    "doctor": (),
    "gpus": (),
    "xids": (),
    "jobs": (),
    "verify": ("t/j",),
    "preflight": (),
}
"""The commands that ask somebody, and what else each needs."""

NAMESPACE = {"preflight": "--agents-namespace"}
"""What the option for the agents' namespace is called where another one has its name."""

BY_PROMETHEUS = {"diagnose", "watch", "xids", "jobs"}
"""Those that counters alone can answer."""

CREDENTIALS = (
    *("--token-file", "t", "--ca-file", "a", "--cert-file", "c", "--key-file", "k"),
    *("--tls-server-name", "agents"),
)


def parsed(command, *arguments):
    parser = argparse.ArgumentParser(exit_on_error=False)
    cli._arguments(command).add_arguments(parser)
    return parser.parse_args([*arguments, *REST[command]])


def namespace(command):
    return NAMESPACE.get(command, "--namespace")


@pytest.mark.parametrize("command", REST)
def test_each_takes_agents_a_cluster_and_credentials(command):
    given = parsed(command, "--agent", "a:1", "--agent", "b:2", *CREDENTIALS)
    assert given.agent == ["a:1", "b:2"]
    assert (given.token_file, given.tls_server_name) == (Path("t"), "agents")
    given = parsed(command, "--cluster", namespace(command), "rankscope", *CREDENTIALS)
    assert (given.cluster, given.namespace) == (True, "rankscope")


@pytest.mark.parametrize("command", REST)
def test_each_takes_one_of_several_clusters(command):
    given = parsed(command, "--cluster", "--context", "east", "--kubeconfig", "k")
    assert connection.cluster_access(given) == ClusterAccess("east", "k")
    assert not connection.cluster_access(parsed(command, "--cluster")).chosen


@pytest.mark.parametrize("command", REST)
def test_prometheus_is_one_where_it_can_answer(command):
    if command in BY_PROMETHEUS:
        assert parsed(command, "--prometheus", "http://p:9090").prometheus == "http://p:9090"
    else:
        with pytest.raises((argparse.ArgumentError, SystemExit)):
            parsed(command, "--prometheus", "http://p:9090")


def test_nobody_else_declares_them():
    """A command that declares a flag of its own would not have the others."""
    found = {
        (path.name, flag)
        for path in FOLDER.glob("*.py")
        for flag in ('"--agent"', '"--cluster"', '"--prometheus"', '"--namespace"', "add_entry(")
        if path.name != "connection.py" and flag in path.read_text()
    }
    of_manifests = {("preflight.py", '"--namespace"')}
    of_the_watch = {("canary.py", '"--prometheus"'), ("canary.py", "add_entry(")}
    of_the_api_server = {("logs.py", '"--cluster"')}
    assert found == of_manifests | of_the_watch | of_the_api_server, "these are not of agents"


def test_every_command_that_asks_is_tried():
    asking = {
        path.stem for path in FOLDER.glob("*.py") if "connection.add_arguments" in path.read_text()
    }
    assert asking == set(REST)


@pytest.mark.parametrize("command", REST)
def test_credentials_that_do_not_go_together_are_one_sentence(command, capsys):
    code = cli.main([command, "--agent", "127.0.0.1:1", "--cert-file", "c", *REST[command]])
    said = capsys.readouterr().err
    assert code == 1
    assert said == f"rankscope {command}: --cert-file and --key-file go together\n"


@pytest.mark.parametrize("command", REST)
def test_a_cluster_is_asked_for_the_agents_with_what_is_shown(command, monkeypatch, capsys):
    def nobody(namespace, entry, *_, **_more):
        asked.append((namespace, entry.server_name))
        raise ClusterError("nobody is there")

    asked = []
    monkeypatch.setattr(connection, "trusted_agents", nobody)
    monkeypatch.setattr("rankscope_analyzers.commands.watch.trusted_agents", nobody)
    monkeypatch.setattr("rankscope_analyzers.commands.doctor._kept_from_starting", lambda *_: ())
    given = ["--cluster", namespace(command), "rankscope", "--tls-server-name", "agents"]
    cli.main([command, *given, *REST[command]])
    assert "nobody is there" in capsys.readouterr().err
    assert asked == [("rankscope", "agents")]


def test_agents_of_a_cluster_keep_the_nodes_that_it_names(monkeypatch):
    found = NodeAgents({"n0": "http://a:1", "n1": "http://b:1"})
    monkeypatch.setattr(connection, "trusted_agents", lambda *_, **_more: found)
    whom = connection.chosen_targets(parsed("gpus", "--cluster"))
    assert [(agent.url, agent.node) for agent in whom.agents()] == [
        ("http://a:1", "n0"),
        ("http://b:1", "n1"),
    ]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("rankscope_analyzers.intake.agent_pages.POLL_SECONDS", 0.05)


def test_an_empty_record_is_refused_and_the_flag_that_helps_fills_it(tmp_path, capsys):
    token, file = tmp_path / "token", tmp_path / "run.json"
    token.write_text("the-one-that-opens-it\n")
    with Agent(status=401, token="the-one-that-opens-it") as agent:
        given = ["record", "--agent", agent.url, "--since", "90000d"]
        assert cli.main([*given, str(file)]) == 1
        said = capsys.readouterr().err
        assert "there is nothing to record about job t/j" in said
        assert "answers 401: give --token-file" in said
        assert not file.exists()
        assert cli.main([*given, "--token-file", str(token), str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["world_size"] == 8
    assert found["median_step_seconds"] == pytest.approx(1.19, abs=0.1)


def test_a_lease_in_another_cluster_than_the_agents_is_refused(capsys):
    """Two watches with leases in two clusters would both evaluate."""
    command = ["watch", "--cluster", "--namespace", "rankscope", "--lease", "watch"]
    assert cli.main([*command, "--context", "east"]) == 1
    assert "--lease takes the kubeconfig's current context" in capsys.readouterr().err
