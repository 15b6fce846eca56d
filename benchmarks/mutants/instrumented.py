"""Imports the project's modules so that each function records that it ran: in `REACHED`.

Much cheaper than a tracer, so that the tests of a constant can be found among thousands.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

PACKAGES = ("rankscope_agent", "rankscope_analyzers", "rankscope_dashboards")

REACHED: set[str] = set()
"""Functions that ran since this was cleared, as `path:line`."""


def install(root: Path) -> None:
    """Instrument the project's modules that are imported from now on."""
    builtins.__rankscope_reached__ = REACHED.add  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder(root))


def instrumented(source: bytes, path: str) -> ast.Module:
    """Return a module's syntax tree whose functions record that they ran."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            noted = ast.parse(f"__rankscope_reached__({f'{path}:{node.lineno}'!r})").body[0]
            for inner in ast.walk(noted):
                ast.copy_location(inner, first)
            node.body.insert(int(documented), noted)
    return tree


class _Loader(SourceFileLoader):
    root: Path

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = instrumented(self.get_data(path), str(Path(path).relative_to(self.root)))
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the project's modules below root, with a loader that instruments them."""
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return spec
        if not Path(spec.loader.path).is_relative_to(self._root):
            return spec
        spec.loader = _Loader(fullname, spec.loader.path)
        spec.loader.root = self._root
        return spec
