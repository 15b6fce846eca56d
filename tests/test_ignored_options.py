"""Options that would have no effect are refused, and messages are written for people."""

from __future__ import annotations

import argparse

import pytest

from rankscope_agent.web.routes import Route, sentence
from rankscope_analyzers import cli
from rankscope_analyzers.arguments import connection
from serving import answering


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("diagnose --trace DIR --workers 2", "--workers needs --verdicts"),
        ("demo --seconds 3", "--seconds needs --stack"),
        ("demo --tour --fault hang", "--tour shows all faults"),
        ("logs --from DIR --tail 3", "--since and --tail are for logs of a cluster"),
        ("logs --from DIR --since 3m", "--since and --tail are for logs of a cluster"),
        ("config schema x.yaml", "schema reads no file: leave out x.yaml"),
        ("config example x.yaml", "example reads no file: leave out x.yaml"),
        (
            "watch --once --prometheus http://x --records DIR",
            "--records needs agents",
        ),
        ("watch --once --agent x --mlflow-token-file DIR/x", "needs --mlflow-tracking-uri"),
        ("watch --once --cluster --namespace x --lease x", "leave it out with --once"),
        ("explain checkpoint DIR", ""),
        ("diff DIR/x DIR/x", "/x is not a run record: rankscope record writes them"),
        ("diagnose --trace DIR", "expected one of records.csv"),
    ],
)
def test_a_command_says_what_it_cannot_do(command, complaint, tmp_path, capsys):
    (tmp_path / "x").write_text("no JSON")
    assert cli.main(command.replace("DIR", str(tmp_path)).split()) == 1
    said = capsys.readouterr().err
    assert complaint in said
    assert len(said.splitlines()) == bool(complaint)


def test_a_reason_of_a_server_ends_without_a_line_break(capsys):
    routes = {"/": Route(lambda request: sentence(405, "Only GET."), "open")}
    with answering(routes) as url:
        assert cli.main(["jobs", "--prometheus", url]) == 1
    assert "\\n" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("gpu-7", "gpu-7:9877"),
        ("[::1]", "[::1]:9877"),
        ("gpu-7:80", "gpu-7:80"),
        ("http://gpu-7", "http://gpu-7"),
        ("https://gpu-7:1/agent", "https://gpu-7:1/agent"),
    ],
)
def test_a_host_alone_has_the_port_that_agents_listen_on(given, meant):
    parser = argparse.ArgumentParser()
    connection.add_arguments(parser)
    assert parser.parse_args(["--agent", given]).agent == [meant]
