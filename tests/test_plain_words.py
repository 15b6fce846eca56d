"""Modules and texts for users keep to words that an engineer of this field would use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_agent.settings.config import OPTIONS
from rankscope_dashboards.rules.alerts import ALERTS

ROOT = Path(__file__).parent.parent
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)

PACKAGES = (
    ROOT / "agent/rankscope_agent",
    ROOT / "analyzers/rankscope_analyzers",
    ROOT / "dashboards/rankscope_dashboards",
)

NOT_IN_MODULE_NAMES = {
    *("blame", "book", "chores", "crowding", "dark", "dealt", "following", "inert"),
    *("ledger", "lives", "patience", "place", "places", "room", "said", "sight", "sightings"),
    *("signals", "speakers", "spells", "starved", "told", "trouble", "utils", "vetting"),
    *("whereabouts", "wordings"),
}
"""The field says sanitize, timeout, location, memory, visibility, problem, validation, finding,
writer, incident, episode and starvation."""

NOT_IN_NAMES = {
    *("amiss", "heard", "said", "sight", "sighting", "sightings", "speaker", "speakers", "spoke"),
    *("told", "trouble", "troubles", "whereabouts", "whom"),
}
"""Words with too many meanings: a name says what the value is (a sentence, a writer, a finding)."""

NOT_IN_DOCSTRINGS = (
    *("amiss", "for want of", "goes on firing", "mend(?:ed|s)?", "parted by", "time and again"),
    *("[Ss]ay whether", "[Tt]ell whether", "from look to look", "unless told otherwise"),
    *("told apart", "befalls?", "befell", "by turns", "for a person", "found no room"),
    *("makes? no sense", "rising", "what of it"),
)
"""Plain words say the same: Return True if, separated by, repaired, by default, distinguished."""

NOT_IN_TEXTS = (
    *("amiss", "as last told", "for want of", "goes on firing", "mend(?:ed|s)?"),
    *("parted by", "time and again", "was told"),
)
"""Plain words say the same: wrong, reported, lack of, keeps firing, repaired."""

NOT_IN_PAGES = (
    *("is there twice", "tells? of", "told of", "(?:is|are|was|were) told", "agents of before"),
    *("finds? room", "smells? of", "speaks? for", "wears?", "swells?", "drips?", "befell"),
    *("anybody", "everybody", "somebody", "on the word of", "leaves word", "in vain"),
    *("dealt out", "by turns", "lends", "is no number", "is no rank", "are no ranks"),
)
"""Plain words say the same: is unique, reports, is reported, older agents, fits, may report for."""


def texts():
    yield from ((metric.name, metric.help) for metric in CATALOGUE)
    yield from ((option.flag, option.help) for option in OPTIONS.values())
    for alert in ALERTS:
        yield alert.name, f"{alert.summary} {alert.description} {alert.why} {alert.needs}"
    for runbook in (ROOT / "docs/runbooks").glob("*.md"):
        yield runbook.name, runbook.read_text(encoding="utf-8")


def words_of(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def defined_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names of functions, classes, arguments, variables and attributes."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def docstrings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield texts that stand alone: docstrings, and the sentences below constants."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


@cache
def modules() -> Mapping[str, tuple[frozenset[str], tuple[str, ...]]]:
    """Return the names that each module defines, and its docstrings."""
    found = {}
    for package in (*PACKAGES, ROOT / "benchmarks"):
        for path in sorted(package.rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            texts = tuple(docstrings(nodes))
            found[str(path.relative_to(ROOT))] = (frozenset(defined_names(nodes)), texts)
    return found


@cache
def prose() -> Mapping[str, str]:
    """Return the pages of the documentation without code."""
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "CHANGELOG.md"]
    return {page.name: CODE.sub("", page.read_text(encoding="utf-8")) for page in pages}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_modules_are_named_by_the_fields_terms(package):
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if NOT_IN_MODULE_NAMES & set(path.stem.split("_"))
    }
    assert not found


@pytest.mark.parametrize("words", NOT_IN_TEXTS)
def test_texts_for_users_are_in_plain_words(words):
    pattern = re.compile(rf"\b{words}\b")
    assert not [name for name, text in texts() if pattern.search(text)]


@pytest.mark.parametrize("words", NOT_IN_PAGES)
def test_pages_are_in_plain_words(words):
    pattern = re.compile(rf"\b{words}\b".replace(" ", r"\s+"))
    assert not [name for name, text in prose().items() if pattern.search(text)]


def test_names_say_what_they_stand_for():
    found = {
        (module, name)
        for module, (names, _) in modules().items()
        for name in names
        if words_of(name) & NOT_IN_NAMES
    }
    assert not found


def test_docstrings_are_in_plain_words():
    pattern = re.compile(rf"\b(?:{'|'.join(NOT_IN_DOCSTRINGS)})\b")
    found = {
        (module, hit[0])
        for module, (_, texts) in modules().items()
        for text in texts
        for hit in pattern.finditer(text)
    }
    assert not found
