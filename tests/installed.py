"""What is installed here: whether a library is there, without importing it, and what it requires.

Libraries that only other processes import are too large to be imported by tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def skip_without(package: str, reason: str) -> None:
    """Skip a test, or at the top of a module all of its tests, where a package is missing.

    Importing torch takes seconds of a core, in each of the test processes that collect.

    Args:
        package: the package that must be installed.
        reason: what needs it.
    """
    if find_spec(package) is None:
        pytest.skip(f"needs {package}: {reason}", allow_module_level=True)


def needs_of(*extras: str) -> list[str]:
    """Return the requirements of pyproject.toml that an installation with these extras has."""
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    more = [line for extra in extras for line in project["optional-dependencies"][extra]]
    return project["dependencies"] + more


def closure(needs: Iterable[str]) -> set[str]:
    """Return the names of all packages that requirements bring, with what these require."""
    to_visit = list(_asked_for(needs, frozenset()))
    found: set[str] = set()
    while to_visit:
        name, its_extras = to_visit.pop()
        if name not in found:
            found.add(name)
            to_visit += _asked_for(metadata.requires(name) or (), its_extras)
    return found


def _asked_for(
    lines: Iterable[str], extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield names and extras of the packages that lines ask for, on this Python."""
    for one in map(Requirement, lines):
        if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in {"", *extras}):
            yield canonicalize_name(one.name), frozenset(one.extras)
