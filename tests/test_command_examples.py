"""The examples in the commands' help: each is a command line that the command takes."""

from __future__ import annotations

import shlex

import pytest

from rankscope_agent.contract.sources import SOURCES
from rankscope_agent.settings.command_line import parse_config
from rankscope_analyzers import cli
from rankscope_analyzers.arguments import examples
from rankscope_dashboards import generate


def test_each_command_has_examples_and_no_other_name_has():
    assert set(examples.EXAMPLES) == set(cli.COMMANDS)
    assert set(examples.EXIT_CODES) < set(cli.COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        f"{command} {arguments}"
        for command, lines in examples.EXAMPLES.items()
        for arguments, _ in lines
    ],
)
def test_an_example_is_a_command_line_that_its_command_takes(arguments, monkeypatch, capsys):
    command, *rest = shlex.split(arguments)
    module = cli._load(command)
    monkeypatch.setattr(module, "run", lambda options: 0)
    assert cli.main([command, *rest]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_shows_what_the_command_is_for_its_examples_and_fits_the_terminal(
    command, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    shown = capsys.readouterr().out
    assert " ".join(shown.split()).count(cli.COMMANDS[command][1]) == 1
    for arguments, _ in examples.EXAMPLES[command]:
        assert f"  rankscope {command} {arguments}".rstrip() + "\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_examples_purposes_and_exit_codes_fill_eighty_columns():
    texts = "\n".join(map(examples.epilog, cli.COMMANDS))
    wrapped = [line for line in texts.splitlines() if not line.startswith("  rankscope")]
    assert 75 < max(map(len, wrapped)) <= 80


def commands_of(help_text: str) -> list[list[str]]:
    """Return the arguments of the commands that a help's examples show."""
    _, _, shown = help_text.partition("examples:\n")
    lines = [line.strip() for line in shown.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("rankscope-")]


def test_the_agents_examples_are_commands_that_it_takes(capsys):
    collectors = [one.name for one in SOURCES]
    with pytest.raises(SystemExit):
        parse_config(["--help"], {}, collectors, "0")
    found = commands_of(capsys.readouterr().out)
    assert len(found) == 4
    for arguments in found:
        parse_config(arguments, {}, collectors, "0")


def test_examples_of_the_dashboards_write_and_compare_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        generate.main(["generate", "--help"])
    found = commands_of(capsys.readouterr().out)
    (tmp_path / "rankscope.yaml").write_text("version: 1\n")
    assert [generate.main(arguments) for arguments in found] == [0, 0, 0]
