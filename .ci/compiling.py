"""Has pytest compile tests without executing them: `pytest --collect-only -p compiling`.

Each test process collects all tests. What one has compiled the others read.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from _pytest.assertion import rewrite
from hypothesis.internal.constants_ast import constants_from_module

FOLDERS = ("agent", "analyzers", "dashboards", "tests")


def pytest_collection() -> None:
    """From here on, of each test module, pytest writes its own bytecode only."""
    rewrite.exec = lambda code, names: None  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """Keep the constants of all modules, which Hypothesis reads while it collects, as well."""
    for path in (path for folder in FOLDERS for path in Path(folder).rglob("*.py")):
        module = ModuleType(path.stem)
        module.__file__ = str(path.resolve())
        constants_from_module(module)
