"""Which test files may notice that a constant changed, from their imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.mutants.dependence import Sources, module_name
from benchmarks.mutants.population import Mutant, folded, is_number

MOST_INDIRECT = 10
"""Test files of a mutant that only import what imports its module; there may be a hundred. Files
that contain its number, or the neighbouring one, come first: that is how limits are tested."""


def test_files_for(root: Path, sources: Sources, mutants: Sequence[Mutant]) -> list[Path]:
    """Return the test files that import a mutated module, or a module that imports it."""
    imported = imported_by_tests(root, sources)
    within = {
        name: frozenset(_imports(tree, sources.trees)) for name, tree in sources.trees.items()
    }
    numbers = {path: frozenset(_numbers(_tree(root / path))) for path in imported}
    chosen: set[str] = set()
    for mutant in mutants:
        module = module_name(mutant.path)
        direct = [path for path, names in imported.items() if module in names]
        indirect = [
            path
            for path, names in imported.items()
            if module not in names and any(module in within[name] for name in names)
        ]
        number = folded(ast.parse(mutant.old, mode="eval").body)
        near = {number - 1, number, number + 1}
        likely = [path for path in indirect if near & numbers[path]]
        others = [path for path in indirect if path not in likely]
        chosen |= {*direct, *(likely + others)[:MOST_INDIRECT]}
    return [root / path for path in sorted(chosen)]


def imported_by_tests(root: Path, sources: Sources) -> Mapping[str, frozenset[str]]:
    """Return which modules of the project each test file imports, by its path below root.

    What a test file imports from another one counts with what that one imports.
    """
    trees = {path.stem: _tree(path) for path in sorted((root / "tests").glob("test_*.py"))}
    own = {name: frozenset(_imports(tree, sources.trees)) for name, tree in trees.items()}
    return {
        f"tests/{name}.py": own[name].union(*(own[one] for one in _imports(tree, trees)))
        for name, tree in trees.items()
    }


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _numbers(tree: ast.AST) -> Iterator[float]:
    """Yield the numbers that are written out, `64 << 10` as one."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.expr) and is_number(child):
            with suppress(ArithmeticError):
                yield folded(child)
        else:
            yield from _numbers(child)


def _imports(tree: ast.Module, modules: Mapping[str, object]) -> Iterator[str]:
    """Yield the modules that are imported: by statements, or by name as `importorskip` does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
            yield from (name for name in names if name in modules)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("importorskip"):
            yield from (name for name in _texts(node.args) if name in modules)


def _texts(values: Sequence[ast.expr]) -> Iterator[str]:
    return (one.value for one in values if isinstance(one, ast.Constant) and type(one.value) is str)
