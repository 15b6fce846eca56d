"""Which names and functions depend on a constant, read from the sources.

A name depends on those in its assignment, also through functions that the assignment calls, and
also across modules that import them. A function depends on what its body and its defaults read.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.mutants.population import ROOMS, Mutant

Name = tuple[str, str]
"""A module's dotted name, and a name in it; a class represents its fields."""


@dataclass(frozen=True, slots=True)
class Dependents:
    """What a constant's change reaches."""

    names: tuple[Name, ...]
    """Module-level names to evaluate again, each after those it depends on."""
    functions: frozenset[str]
    """Functions that read one of them, as `path:line`."""


@dataclass(slots=True)
class Sources:
    """The project's modules, and what reads what in them."""

    trees: dict[str, ast.Module] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    assigned_from: dict[Name, list[Name]] = field(default_factory=lambda: defaultdict(list))
    """Names whose assignment (or class body) reads a name."""
    functions_of: dict[Name, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Functions that read a name."""
    through: dict[Name, set[Name]] = field(default_factory=lambda: defaultdict(set))
    """Module-level functions that read a name, as names."""
    in_module: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def dependents(self, mutant: Mutant) -> Dependents:
        """Return what one mutant reaches: if no function reads it, all functions of its module."""
        module = module_name(mutant.path)
        roots = [(module, name) for name in names_of(mutant.name)]
        names: list[Name] = []
        functions: set[str] = set()
        while roots:
            name = roots.pop(0)
            if name in names:
                continue
            names.append(name)
            functions |= self.functions_of.get(name, set())
            roots += self.assigned_from.get(name, [])
            for function in self.through.get(name, ()):
                roots += self.assigned_from.get(function, [])
        return Dependents(tuple(names), frozenset(functions or self.in_module[module]))


def module_name(path: str) -> str:
    """Return the dotted name of a module of the project."""
    return ".".join(Path(path).with_suffix("").parts[1:]).removesuffix(".__init__")


def names_of(target: str) -> list[str]:
    """Return the module-level names of an assignment's target; of a class's field, the class."""
    tree = ast.parse(target.split(".")[0], mode="eval")
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def read(root: Path) -> Sources:
    """Read all modules below root."""
    sources = Sources()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            relative = str(path.relative_to(root))
            module = module_name(relative)
            sources.trees[module] = ast.parse(path.read_text(encoding="utf-8"))
            sources.paths[module] = relative
    for module in sources.trees:
        _read_module(sources, module)
    return sources


def _read_module(sources: Sources, module: str) -> None:
    imported = dict(_imports(sources.trees[module], sources.trees))
    for statement in sources.trees[module].body:
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.ClassDef):
            targets = list(_targets(statement))
            for name in _reads(_outside_of_functions(statement), module, imported):
                sources.assigned_from[name] += [(module, target) for target in targets]
        if isinstance(statement, ast.ClassDef):
            methods = _methods(statement, sources.paths[module])
            sources.functions_of[module, statement.name].update(methods)
    for node in ast.walk(sources.trees[module]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = f"{sources.paths[module]}:{node.lineno}"
            sources.in_module[module].add(function)
            for name in _reads(ast.walk(node), module, imported):
                sources.functions_of[name].add(function)
                sources.through[name].add((module, node.name))


def _methods(owner: ast.ClassDef, path: str) -> Iterator[str]:
    """Yield the methods of a class, which see its fields wherever its objects are created."""
    for node in owner.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path}:{node.lineno}"


def _imports(tree: ast.Module, modules: Mapping[str, object]) -> Iterator[tuple[str, Name]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in modules:
                    yield alias.asname or alias.name, (whole, "")
                else:
                    yield alias.asname or alias.name, (node.module, alias.name)


def _targets(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ClassDef):
        yield statement.name
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]
    for target in targets:
        yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _outside_of_functions(statement: ast.stmt) -> Iterator[ast.AST]:
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += ast.iter_child_nodes(node)


def _reads(nodes: Iterator[ast.AST], module: str, imported: Mapping[str, Name]) -> Iterator[Name]:
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield imported.get(node.id, (module, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner, name = imported.get(node.value.id, ("", ""))
            if owner and not name:
                yield owner, node.attr
