"""The state of a job as plain values that JSON can hold, and back again.

Objects are written field by field, arrays byte by byte, so that a loaded state continues exactly
like the saved one. Only classes of the modules listed here are ever made, without calling them;
anything else in a document is an error.
"""

from __future__ import annotations

import base64
import math
import reprlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

VERSION = 1
"""To be incremented if a field keeps its name and changes its meaning; new and removed fields are
noticed anyway."""

MODULES: Sequence[str] = (
    "rankscope_analyzers.steps.layout",
    "rankscope_analyzers.steps.records",
    "rankscope_analyzers.steps.rows",
    "rankscope_analyzers.steps.runs",
    "rankscope_analyzers.stragglers.assembly",
    "rankscope_analyzers.stragglers.baselines",
    "rankscope_analyzers.stragglers.step_averaging",
    "rankscope_analyzers.stragglers.rank_zero_work",
    "rankscope_analyzers.stragglers.culprit_changes",
    "rankscope_analyzers.stragglers.detector",
    "rankscope_analyzers.stragglers.feed",
    "rankscope_analyzers.stragglers.followed_jobs",
    "rankscope_analyzers.stragglers.recent_rows",
    "rankscope_analyzers.stragglers.returning_stage",
    "rankscope_analyzers.stragglers.incidents",
    "rankscope_analyzers.stragglers.incident_tracker",
    "rankscope_analyzers.stragglers.long_steps",
    "rankscope_analyzers.stragglers.periodic_exchange",
    "rankscope_analyzers.stragglers.quantities",
    "rankscope_analyzers.stragglers.run",
    "rankscope_analyzers.stragglers.shape",
    "rankscope_analyzers.stragglers.silent_members",
    "rankscope_analyzers.stragglers.slow_checkpoints",
    "rankscope_analyzers.stragglers.special_steps",
    "rankscope_analyzers.stragglers.view",
)
"""Modules whose classes can be part of a state."""

NUMBERS: Mapping[str, type[np.generic]] = {"f8": np.float64, "i8": np.int64, "b1": np.bool_}
"""Types of arrays, by numpy's code."""

DEEPEST = 64
"""Maximum nesting of a document; a state has a dozen levels."""


class StateError(ValueError):
    """A document is not a state of this version; the message says where."""


def document(value: object) -> dict[str, Any]:
    """Return an object and all that it refers to as values that JSON can hold.

    Raises:
        TypeError: it refers to an object of a class that is not listed here.
    """
    return {"version": VERSION, "state": _Writer().plain(value)}


def loaded(found: object) -> Any:
    """Return the object that a document represents.

    Raises:
        StateError: the document is of another version, or not a state at all.
    """
    if not isinstance(found, dict) or found.get("version") != VERSION:
        version = found.get("version") if isinstance(found, dict) else None
        raise StateError(f"a state of version {version!r}, expected {VERSION}")
    return _Reader().value(found.get("state"), 0)


def forked(value: Any) -> Any:
    """Return a copy that can be changed: values that never change are shared, not copied."""
    return _copied(value, {})


def _copied(value: Any, done: dict[int, Any]) -> Any:
    if id(value) in done:
        return done[id(value)]
    made: Any = value
    if isinstance(value, np.ndarray):
        made = value.copy()
    elif isinstance(value, deque):
        made = deque((_copied(one, done) for one in value), value.maxlen)
    elif isinstance(value, list):
        made = [_copied(one, done) for one in value]
    elif isinstance(value, dict):
        made = {key: _copied(one, done) for key, one in value.items()}
    elif type(value).__module__ in MODULES and not _is_frozen(type(value)):
        made = object.__new__(type(value))
        done[id(value)] = made
        for name in _fields(type(value)):
            setattr(made, name, _copied(getattr(value, name), done))
    done[id(value)] = made
    return made


def _is_frozen(kind: type) -> bool:
    known = getattr(kind, "__dataclass_params__", None)
    return known is not None and known.frozen


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(name for one in reversed(kind.__mro__) for name in getattr(one, "__slots__", ()))


class _Writer:
    """Writes each object once; further references to it are its number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []  # else another object might get the id of a written one

    def plain(self, value: object) -> Any:
        """Return a value in JSON-ready form."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, np.bool_):
            return bool(value)
        if isinstance(value, int | np.integer):
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, np.ndarray):
            return _array(value)
        for kind, name in _CONTAINERS:
            if isinstance(value, kind):
                return self._container(name, value)
        return self._object(value)

    def _container(self, name: str, value: Any) -> dict[str, Any]:
        if name == "dict":
            return {name: [[self.plain(key), self.plain(one)] for key, one in value.items()]}
        if name == "deque":
            return {name: [self.plain(one) for one in value], "longest": value.maxlen}
        ordered = sorted(value) if name == "set" else value
        return {name: [self.plain(one) for one in ordered]}

    def _object(self, value: object) -> dict[str, Any]:
        kind = type(value)
        if kind.__module__ not in MODULES:
            raise TypeError(f"a {kind.__module__}.{kind.__qualname__} is no part of a state")
        if id(value) in self._numbers:
            return {"again": self._numbers[id(value)]}
        self._numbers[id(value)] = number = len(self._numbers)
        self._kept.append(value)
        fields = {name: self.plain(getattr(value, name)) for name in _fields(kind)}
        return {"object": f"{kind.__module__}.{kind.__name__}", "number": number, "fields": fields}


_CONTAINERS: Sequence[tuple[type, str]] = (
    (tuple, "tuple"), (list, "list"), (dict, "dict"), (deque, "deque"), (frozenset, "set"),
)  # fmt: skip


def _array(value: npt.NDArray[Any]) -> dict[str, Any]:
    code = value.dtype.str[1:]
    if code not in NUMBERS:
        raise TypeError(f"an array of {value.dtype} is no part of a state")
    little = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)
    return {
        "array": base64.b64encode(little.tobytes()).decode("ascii"),
        "of": code,
        "shape": list(value.shape),
    }


class _Reader:
    """Makes the objects of a document."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}

    def value(self, found: Any, depth: int) -> Any:
        """Return the value that a part of a document represents."""
        if found is None or isinstance(found, bool | int | float | str):
            return found
        if not isinstance(found, dict) or depth > DEEPEST:
            raise StateError(f"{_shown(found)} stands for nothing")
        for name, read in _READERS.items():
            if name in found:
                try:
                    return read(self, found, depth + 1)
                except StateError:
                    raise
                except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                    raise StateError(f"{_shown(found)}: {error!r}") from error
        raise StateError(f"{_shown(found)} stands for nothing")

    def several(self, found: Any, depth: int) -> Iterator[Any]:
        """Yield the values that the parts of a list represent."""
        if not isinstance(found, list):
            raise StateError(f"{_shown(found)} is not a list")
        return (self.value(one, depth) for one in found)

    def map(self, found: Mapping[str, Any], depth: int) -> dict[Any, Any]:
        """Return a dictionary."""
        return {self.value(key, depth): self.value(one, depth) for key, one in found["dict"]}

    def again(self, found: Mapping[str, Any], _: int) -> Any:
        """Return an object that occurred before."""
        return self._objects[found["again"]]

    def object(self, found: Mapping[str, Any], depth: int) -> Any:
        """Return an object with its fields."""
        kind = _kind(found["object"])
        made: Any = object.__new__(kind)
        self._objects[found["number"]] = made
        fields = found["fields"]
        if set(fields) != set(_fields(kind)):
            raise StateError(f"{kind.__name__} has the fields {sorted(fields)}")
        for name in _fields(kind):
            object.__setattr__(made, name, self.value(fields[name], depth))
        return made


def _kind(name: str) -> type:
    module, _, own = name.rpartition(".")
    if module not in MODULES:
        raise StateError(f"{name} is no part of a state")
    kind = getattr(import_module(module), own, None)
    if not isinstance(kind, type) or kind.__module__ != module or not _fields(kind):
        raise StateError(f"{name} is no part of a state")
    return kind


def _of_array(_: _Reader, found: Mapping[str, Any], __: int) -> npt.NDArray[Any]:
    held = np.frombuffer(base64.b64decode(found["array"], validate=True), f"<{_code(found)}")
    return held.astype(NUMBERS[found["of"]], copy=True).reshape(found["shape"])


def _code(found: Mapping[str, Any]) -> str:
    code = found["of"]
    if code not in NUMBERS:
        raise StateError(f"an array of {_shown(code)} is no part of a state")
    return str(code)


_READERS: Mapping[str, Callable[[_Reader, Mapping[str, Any], int], Any]] = {
    "float": lambda _, found, __: float(found["float"]),
    "tuple": lambda reader, found, depth: tuple(reader.several(found["tuple"], depth)),
    "list": lambda reader, found, depth: list(reader.several(found["list"], depth)),
    "set": lambda reader, found, depth: frozenset(reader.several(found["set"], depth)),
    "deque": lambda reader, found, depth: deque(
        reader.several(found["deque"], depth), found["longest"]
    ),
    "dict": _Reader.map,
    "array": _of_array,
    "again": _Reader.again,
    "object": _Reader.object,
}


def _shown(value: object) -> str:
    return reprlib.repr(value)
