"""Applies a mutant to modules that are already imported: faster than importing them again.

The assignment is evaluated with the other number, then those that depend on it, in their own
modules; modules that imported one of the names get the new value. Defaults of functions and of
dataclasses' fields are set, and caches of another size are created again.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from benchmarks.mutants.dependence import Dependents, Name, module_name
from benchmarks.mutants.instrumented import PACKAGES
from benchmarks.mutants.population import Mutant


class CannotApplyError(Exception):
    """A number whose effect cannot be applied to imported modules."""


Importers = Mapping[Name, Sequence[tuple[str, str]]]
"""Modules that imported a name, and their name for it."""


def importers() -> Importers:
    """Return which modules imported which names of the project, among all that are loaded."""
    found: dict[Name, list[tuple[str, str]]] = defaultdict(list)
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not path or not path.endswith(".py") or "site-packages" in path:
            continue
        try:
            tree = ast.parse(Path(path).read_bytes())
        except (OSError, SyntaxError):
            continue
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(PACKAGES):
                for alias in node.names:
                    found[str(node.module), alias.name].append((name, alias.asname or alias.name))
    return found


def apply(
    mutant: Mutant,
    source: str,
    dependents: Dependents,
    trees: Mapping[str, ast.Module],
    importers: Importers,
) -> None:
    """Change a constant in the running interpreter.

    Raises:
        CannotApplyError: A class does not take the new value of one of its fields.
    """
    owner = module_name(mutant.path)
    trees = {**trees, owner: ast.parse(mutant.applied(source))}
    importlib.import_module(owner)  # commands import what they need when they run
    for name in dependents.names:  # a name may be derived from an imported one
        _evaluate(name, trees)
        _hand_on(name, importers)
    for module in {name[0] for name in dependents.names} | {owner}:
        _set_defaults(module, trees)
        _set_caches(module, trees, importers)


def _value(name: Name) -> object:
    module = sys.modules.get(name[0])
    return getattr(module, name[1], None)


def _evaluate(name: Name, trees: Mapping[str, ast.Module]) -> None:
    module = sys.modules.get(name[0])
    if module is None:
        return
    for statement in trees[name[0]].body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(
                isinstance(n, ast.Name) and n.id == name[1] for t in targets for n in ast.walk(t)
            ):
                tree = ast.Module([statement], [])
                flags = __future__.annotations.compiler_flag
                code = compile(tree, str(module.__file__), "exec", flags, dont_inherit=True)
                exec(code, vars(module))  # noqa: S102 - the project's own assignment
        elif isinstance(statement, ast.ClassDef) and statement.name == name[1]:
            _set_fields(getattr(module, name[1]), statement, vars(module))


def _set_fields(owner: type, statement: ast.ClassDef, names: Mapping[str, object]) -> None:
    for line in statement.body:
        if not isinstance(line, ast.Assign | ast.AnnAssign) or line.value is None:
            continue
        target = line.targets[0] if isinstance(line, ast.Assign) else line.target
        if not isinstance(target, ast.Name):
            continue
        value = eval(compile(ast.Expression(line.value), "field", "eval"), {**vars(owner), **names})  # noqa: S307
        if target.id in _fields(owner):
            value = getattr(value, "_default", getattr(value, "default", value))  # attrs' or ours
            for one in _inheriting(owner, target.id):
                _set_default(one.__init__, target.id, value)  # type: ignore[misc]
        else:
            try:
                setattr(owner, target.id, value)
            except (AttributeError, TypeError) as error:
                raise CannotApplyError(target.id) from error


def _fields(owner: type) -> frozenset[str]:
    """Return the fields of a dataclass or of a class of attrs."""
    ours = getattr(owner, "__dataclass_fields__", ())
    return frozenset((*ours, *(one.name for one in getattr(owner, "__attrs_attrs__", ()))))


def _inheriting(owner: type, field: str) -> Iterator[type]:
    """Yield a class and those below it that inherit its default of a field."""
    yield owner
    below: type
    for below in owner.__subclasses__():
        if field not in inspect.get_annotations(below):
            yield from _inheriting(below, field)


def _set_default(function: FunctionType, name: str, value: object) -> None:
    parameters = [
        p for p in inspect.signature(function).parameters.values() if p.default is not p.empty
    ]
    positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    if function.__defaults__ and name in positional:
        defaults = list(function.__defaults__)
        defaults[positional.index(name)] = value
        function.__defaults__ = tuple(defaults)
    elif function.__kwdefaults__ and name in function.__kwdefaults__:
        function.__kwdefaults__[name] = value


def _hand_on(name: Name, importers: Importers) -> None:
    """Give modules that imported a name its new value."""
    for module, alias in importers.get(name, ()):
        if module in sys.modules:
            setattr(sys.modules[module], alias, _value(name))


def _set_defaults(module: str, trees: Mapping[str, ast.Module]) -> None:
    imported = sys.modules.get(module)
    if imported is None:
        return
    for owner, node in _functions(imported, trees[module]):
        function = inspect.unwrap(inspect.getattr_static(owner, node.name, None))
        function = getattr(function, "__func__", function)
        if not isinstance(function, FunctionType):
            continue
        names = {**vars(imported)}
        if function.__defaults__ and len(node.args.defaults) == len(function.__defaults__):
            function.__defaults__ = tuple(_evaluated(d, names) for d in node.args.defaults)
        for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if default is not None and function.__kwdefaults__:
                function.__kwdefaults__[argument.arg] = _evaluated(default, names)


def _set_caches(module: str, trees: Mapping[str, ast.Module], importers: Importers) -> None:
    imported = sys.modules.get(module)
    for node in trees[module].body if imported else ():
        if not isinstance(node, ast.FunctionDef):
            continue
        cached: Any = getattr(imported, node.name, None)
        if not hasattr(cached, "cache_parameters"):
            continue
        for decorator in node.decorator_list:
            made = _evaluated(decorator, {**vars(imported)})(cached.__wrapped__)
            if made.cache_parameters() != cached.cache_parameters():
                setattr(imported, node.name, made)
                _hand_on((module, node.name), importers)


def _functions(module: ModuleType, tree: ast.Module) -> Iterator[tuple[object, ast.FunctionDef]]:
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            yield module, statement
        elif isinstance(statement, ast.ClassDef):
            owner = getattr(module, statement.name, None)
            yield from ((owner, s) for s in statement.body if isinstance(s, ast.FunctionDef))


def _evaluated(expression: ast.expr, names: dict[str, object]) -> Any:
    return eval(compile(ast.Expression(expression), "default", "eval"), names)  # noqa: S307
