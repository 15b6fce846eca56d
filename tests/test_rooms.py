"""The house stays tidy: few modules at a package's root, each room with a sentence of its own."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
PACKAGES = (
    HERE / "agent" / "rankscope_agent",
    HERE / "analyzers" / "rankscope_analyzers",
    HERE / "dashboards" / "rankscope_dashboards",
)
AT_THE_ROOT = 8
"""Modules that may lie at a package's root; more of them, and nobody finds the one they need."""


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_few_modules_lie_at_the_root(package):
    assert len(list(package.glob("*.py"))) <= AT_THE_ROOT


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_each_room_says_what_it_is_for(package):
    folders = {path.parent for path in package.rglob("*.py")}
    silent = [
        str(folder.relative_to(package))
        for folder in folders
        if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ]
    assert not silent


def test_the_contract_needs_nothing_but_the_standard_library():
    needed = set()
    for path in (PACKAGES[0] / "contract").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                needed |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                needed.add(str(node.module))
    foreign = {name for name in needed if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith("rankscope_agent.contract")} == set()
