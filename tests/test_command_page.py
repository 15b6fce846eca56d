"""The page of commands has a section for each, and what it says of files is what commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rankscope_analyzers import cli

PAGE = (Path(__file__).parents[1] / "docs" / "commands.md").read_text()
COLUMNS = 80

FILES = dict(re.findall(r"^`([\w.-]+)`:\n\n```\w*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
OUTPUTS = dict(re.findall(r"^```\n\$ rankscope (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
OF_FILES = [line for line in OUTPUTS if any(word in FILES for word in line.split())]


def test_each_command_has_a_section_that_shows_it_and_no_other_has():
    _, *parts = re.split(r"^## (.+)\n", PAGE, flags=re.MULTILINE)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert set(sections) == {*cli.COMMANDS, "rankscope-agent"}
    missing = [name for name in cli.COMMANDS if f"rankscope {name}" not in sections[name]]
    assert not missing


@pytest.mark.parametrize("line", OF_FILES)
def test_a_command_prints_what_the_page_shows(line, tmp_path, monkeypatch, capsys):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("NO_COLOR", "1")
    cli.main(shlex.split(line))
    printed = "".join(f"{row.rstrip()}\n" for row in "".join(capsys.readouterr()).splitlines())
    shown = OUTPUTS[line].split("[...]\n")
    assert printed.startswith(shown[0])
    assert printed.endswith(shown[-1])
    assert len(shown) > 1 or printed == shown[0]


def test_the_page_shows_outputs_of_files():
    assert {line.split()[0] for line in OF_FILES} == {"logs", "explain", "preflight", "config"}
