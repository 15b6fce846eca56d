"""The constants that can be mutated: numbers of module-level and class-level tables and defaults.

Numbers inside of functions are left out, and so are those in sentences, types and subscripts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOMS = (
    "agent/rankscope_agent",
    "analyzers/rankscope_analyzers",
    "dashboards/rankscope_dashboards",
)
"""Directories with the code that is shipped, except the probe, a file that nobody imports."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One number of a module, and its replacement."""

    path: str
    """Module, relative to the project's root."""
    line: int
    column: int
    end: int
    """Line from 1, and byte range of the number in that line."""
    name: str
    """What the number belongs to: a constant, `Class.field` or `function()` for a default."""
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}: {self.old} -> {self.new}"

    def applied(self, source: str) -> str:
        """Return a module's source with this number changed."""
        lines = source.splitlines(keepends=True)
        raw = lines[self.line - 1].encode()
        lines[self.line - 1] = (raw[: self.column] + self.new.encode() + raw[self.end :]).decode()
        return "".join(lines)


def population(root: Path) -> list[Mutant]:
    """Return a mutant for each number of all constants below root, in order of their place."""
    return [
        mutant
        for room in ROOMS
        for path in sorted((root / room).rglob("*.py"))
        for mutant in mutants_of(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
    ]


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Yield a mutant for each number of a module's constants."""
    lines = source.encode().splitlines()
    for name, value in _values(ast.parse(source).body):
        for number in _numbers(value):
            end = number.end_col_offset
            if end is None or number.end_lineno != number.lineno:
                continue
            old = lines[number.lineno - 1][number.col_offset : end].decode()
            new = repr(mutated(folded(number)))
            yield Mutant(path, number.lineno, number.col_offset, end, name, old, new)


def mutated(value: float) -> float:
    """Return a number far enough from a value to matter: double or half, depending on the value."""
    if value == 0:
        return 1
    if isinstance(value, int):
        return value * 2 if value % 2 or value < 4 else value // 2
    return value / 2 if round(value * 1000) % 2 else value * 2


def _values(body: Sequence[ast.stmt], owner: str = "") -> Iterator[tuple[str, ast.expr]]:
    for statement in body:
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
            yield owner + ast.unparse(target), statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield owner + ast.unparse(statement.target), statement.value
        elif isinstance(statement, ast.ClassDef):
            yield from _values(statement.body, f"{statement.name}.")
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = statement.args
            for default in (*arguments.defaults, *arguments.kw_defaults):
                if default is not None:
                    yield f"{owner}{statement.name}()", default


def _numbers(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the numbers of an expression, `64 * 1024` as one, without subscripts."""
    if is_number(value):
        yield value
        return
    for child in ast.iter_child_nodes(value):
        if isinstance(value, ast.Subscript) and child is value.slice:
            continue
        if isinstance(child, ast.expr):
            yield from _numbers(child)
        elif isinstance(child, ast.keyword | ast.comprehension):
            for inner in ast.iter_child_nodes(child):
                if isinstance(inner, ast.expr):
                    yield from _numbers(inner)


def is_number(value: ast.AST) -> bool:
    """Return True for a number, or an expression of numbers alone."""
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    return isinstance(value, ast.Constant) and type(value.value) in {int, float}


def folded(number: ast.expr) -> float:
    """Return the value of an expression of numbers alone."""
    code = compile(ast.Expression(number), "constant", "eval")
    value: float = eval(code, {"__builtins__": {}})  # noqa: S307 - numbers and operators alone
    return value
