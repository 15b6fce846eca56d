"""Commands of Rankscope in runbooks can be typed as they stand, at night, by whoever is on call."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from rankscope_analyzers import cli

FOLDER = Path(__file__).parent.parent / "docs/runbooks"
BOOKS = sorted(path.stem for path in FOLDER.glob("*.md"))
OPEN = {"gpus", "xids"}
"""Commands that read what agents and Prometheus show without a token."""


def commands(name: str) -> list[list[str]]:
    """Return the words of each command that is given with arguments, or that is a step's first."""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    spans = re.findall(r"(^\d+\. )?`(rankscope [^`]+)`", text, re.MULTILINE)
    found = [(bool(step), shlex.split(span.replace("<(dmesg)", "FILE"))) for step, span in spans]
    return [words for step, words in found if words[1] in cli.COMMANDS and (step or named(words))]


def named(words: list[str]) -> bool:
    """Return True if a command has arguments: `rankscope explain nccl-log` is only mentioned."""
    return len(words) > (3 if words[1] == "explain" else 2)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=" ".join(words[:2]))
    cli._arguments(words[1]).add_arguments(parser)
    return parser.parse_args(words[2:])


@pytest.mark.parametrize("name", BOOKS)
def test_commands_have_the_arguments_that_they_need(name):
    for words in commands(name):
        parse(words)


@pytest.mark.parametrize("name", BOOKS)
def test_agents_are_asked_with_a_token(name):
    """Agents of an installation give records to nobody else."""
    for words in commands(name):
        if words[1] not in OPEN and {"--agent", "--cluster"} & {*words}:
            assert "--token-file" in words or "/" in words[2], words


@pytest.mark.parametrize("name", BOOKS)
def test_agents_are_not_asked_at_their_nodes_address_where_they_have_their_own(name):
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert text.count("AGENT:9877") == text.count("](../commands.md#the-agent-of-one-node)")
    assert ("NODE:9877" in text) == ("without Kubernetes `rankscope gpus" in text)


def test_drills_ask_agents_with_a_token():
    page = (FOLDER.parent / "game_day.md").read_text(encoding="utf-8")
    asked = re.findall(r"rankscope \w+ --cluster[^\n`]*", page)
    assert len(asked) == 3
    assert [one for one in asked if "--token-file" not in one] == []


def test_a_command_that_lacks_its_source_is_seen():
    with pytest.raises(SystemExit):
        parse(["rankscope", "diagnose", "--job", "JOB"])
    assert len([words for name in BOOKS for words in commands(name)]) > 60
