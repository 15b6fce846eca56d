"""What README and docs name exists: links, commands with their options, paths, modules, rooms."""

from __future__ import annotations

import argparse
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks.__main__ import BENCHMARKS

from rankscope_agent.contract.sources import SOURCES
from rankscope_agent.settings.command_line import build_parser
from rankscope_analyzers import cli
from rankscope_dashboards import generate

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "docs/runbooks/*.md", "agent/probe/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"  # what it names need not be there any more
)
TOP_FOLDERS = ("agent", "analyzers", "benchmarks", "daemonset", "dashboards", "docs", "tests")
PLACEHOLDER = re.compile(r"[A-Z]{3,}|[*<{$]|\.\.\.")
"""What stands for something: NAME, `*.md`, <folder>, $VARIABLE."""


def page_ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=page_ids)


# Links


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in plain}


@every_page
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"https?:|mailto:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


# Paths


def spans(text: str) -> Iterator[str]:
    """Yield code spans, those that go over a line's end included."""
    without_blocks = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`([^`]+)`", without_blocks):
        yield re.sub(r"\s+", " ", span)


@every_page
def test_paths_of_the_project_exist(page):
    for span in spans(page.read_text()):
        first = span.split("/")[0]
        if "/" not in span or first not in TOP_FOLDERS or " " in span or PLACEHOLDER.search(span):
            continue
        assert (ROOT / span.partition("#")[0]).exists(), span


@every_page
def test_pages_that_are_named_exist_in_blocks_of_output_too(page):
    for named in re.findall(r"(?<![\w/])docs/[\w./-]+\.md", page.read_text()):
        assert PLACEHOLDER.search(Path(named).stem) or (ROOT / named).exists(), named


# Commands


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a parser and of its subcommands."""
    found = set()
    for action in parser._actions:
        found |= {*action.option_strings}
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found |= options_of(below)
    return found


@cache
def options() -> Mapping[str, set[str]]:
    """Return all options by command: the programs, and each subcommand of `rankscope`."""
    found = {
        "rankscope-agent": options_of(build_parser([one.name for one in SOURCES], "0")),
        "rankscope-dashboards": options_of(generate._parser()),
        "rankscope": {"--help", "--version", "--print-completion"},
    }
    for name in cli.COMMANDS:
        parser = argparse.ArgumentParser()
        cli._arguments(name).add_arguments(parser)
        found[f"rankscope {name}"] = options_of(parser)
    return found


def command_lines(text: str) -> Iterator[str]:
    """Yield what is to be typed: lines of blocks without a language, and code spans."""
    for block in re.findall(r"^```(?:sh|console)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.removeprefix("$ ")
    yield from spans(text)


def words_of(line: str) -> list[str]:
    """Return a command's words without variables before it; none for what is no command line."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    while words and re.match(r"[A-Z_]+=|export$", words[0]):
        words.pop(0)
    return words


def used(words: list[str]) -> set[str]:
    return {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}


def check_rankscope(words: list[str]) -> None:
    command = words[1] if len(words) > 1 and not words[1].startswith("-") else ""
    if PLACEHOLDER.search(command) or command.endswith(":"):  # what it printed, not a command
        return
    name = f"rankscope {command}".strip()
    assert name in options(), words
    assert used(words) <= options()[name], words


def check_program(words: list[str]) -> None:
    known = options()[words[0]]
    assert {one for one in used(words) if not PLACEHOLDER.search(one)} <= known, words


def check_python(words: list[str]) -> None:
    if words[1:2] == ["-m"]:
        assert find_spec(words[2]) is not None, words
        if words[2] == "benchmarks":
            asked = [word for word in words[3:] if not word.startswith("-")]
            assert {word for word in asked if not PLACEHOLDER.search(word)} <= {*BENCHMARKS}, words
    elif len(words) > 1 and words[1].endswith(".py") and "/" in words[1]:
        assert (ROOT / words[1]).exists(), words


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {word for word in words[1:2] if "=" not in word} <= {*targets}, words


def check_kubectl(words: list[str]) -> None:
    for flag, path in itertools.pairwise(words):
        if flag in {"-f", "-k"} and path.split("/")[0] in TOP_FOLDERS:
            assert (ROOT / path).exists(), words


CHECKS = {
    "rankscope": check_rankscope,
    "rankscope-agent": check_program,
    "rankscope-dashboards": check_program,
    "python": check_python,
    "python3": check_python,
    "make": check_make,
    "kubectl": check_kubectl,
}


@every_page
def test_commands_can_be_typed(page):
    for line in command_lines(page.read_text()):
        words = words_of(line)
        if words and (check := CHECKS.get(Path(words[0]).name)):
            check(words)


@every_page
def test_options_that_stand_alone_are_those_of_a_program_of_ours(page):
    """Ours have a dot within: --web.listen-address, as node_exporter's do."""
    ours = set().union(*options().values())
    subjects = {option.split(".")[0] for option in ours if "." in option}
    for span in spans(page.read_text()):
        for option in re.findall(r"(?<![\w-])--[a-z-]+\.[a-z.-]+", span):
            if option.split(".")[0] in subjects and not PLACEHOLDER.search(span):
                assert option in ours, span


@pytest.mark.parametrize(
    "line",
    [
        "rankscope diagnos --agent x",
        "rankscope diagnose --agents x",
        "rankscope-agent --web.listen=x",
        "python -m rankscope_dashboards.alert_reference x",
        "python -m benchmarks scrap",
        "make tests",
        "kubectl apply -f daemonset/instal.yaml",
        ".venv/bin/python tests/alert_timeline.py",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line):
    words = words_of(line)
    with pytest.raises((AssertionError, ModuleNotFoundError)):
        CHECKS[Path(words[0]).name](words)


# Rooms and files


def rooms(package: Path) -> set[str]:
    return {path.parent.name for path in package.glob("*/__init__.py")}


def test_the_page_on_architecture_names_every_room_once():
    page = (ROOT / "docs" / "architecture.md").read_text()
    for title, package in (
        ("agent", "agent/rankscope_agent"),
        ("analyzers", "analyzers/rankscope_analyzers"),
        ("dashboards", "dashboards/rankscope_dashboards"),
    ):
        heading = rf"^### Packages of the {title}\n(.*?)^#"
        (part,) = re.findall(heading, page, re.MULTILINE | re.DOTALL)
        firsts = re.findall(r"^\| ([^|]+) \|", part, re.MULTILINE)
        named = [name for cell in firsts for name in re.findall(r"`(\w+)`", cell)]
        assert sorted(named) == sorted(rooms(ROOT / package))


def test_modules_on_the_ways_of_the_architecture_exist():
    page = (ROOT / "docs" / "architecture.md").read_text()
    packages = [ROOT / "agent/rankscope_agent", ROOT / "analyzers/rankscope_analyzers"]
    packages.append(ROOT / "dashboards/rankscope_dashboards")
    ways = page[page.index("## The path of a step record") :]
    named = {span for span in spans(ways) if span.endswith(".py")}
    assert len(named) > 25
    modules = [str(path) for package in packages for path in package.rglob("*.py")]
    for name in named - {"agent/probe/rankscope_probe.py"}:
        assert any(module.endswith(f"/{name}") for module in modules), name


def test_what_contributors_are_asked_to_touch_exists_in_its_folder():
    """Names in capitals are the new files; the folders of these are there."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    files = [name for cell in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
             for name in re.findall(r"`([^`]+)`", cell)]  # fmt: skip
    assert len(files) > 30
    for name in files:
        path = ROOT / name
        assert (path.parent if re.search(r"[A-Z]{4,}", path.stem) else path).exists(), name


SHOWN = (*PAGES, *sorted((ROOT / "dashboards" / "generated").rglob("*.*")))


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_word_stands_three_times_in_a_row(page):
    assert not re.search(r"\b([a-z]{2,})(?:\s+\1){2,}\b", page.read_text())
