"""Pickles of checkpoints as symbols: classes and calls are named, never imported or executed.

The machine of `untrusted_pickle` executes the opcodes of plain values; here the opcodes that name,
build and call objects record what they would have done. A short table interprets the few calls that
structure a checkpoint (ordered dictionaries, sizes, tensors and their storages).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rankscope_agent.contract import untrusted_pickle
from rankscope_agent.contract.pickle_limits import Limits, PickleCutOff, UnsafePickle
from rankscope_agent.contract.untrusted_pickle import Action, Machine

CHECKPOINT = Limits(
    data_bytes=256 << 20,
    text_bytes=64 << 20,
    integer_bytes=64,
    values=8_000_000,
    memo=6_000_000,
    stack=1_000_000,
    opcodes=24_000_000,
)
"""For a file's pickle: states of random generators are texts of some kilobytes and integers of 16
bytes, the metadata of 10,000 shards takes 2 million opcodes. Depth and totals are not limited:
nothing here walks a value without a separate limit."""

NAME_CHARACTERS = 300
"""Longest name of a module or class that is read."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A class or function that the pickle names, as "module.name"."""

    name: str


@dataclass(eq=False, slots=True)
class Call:
    """An object that the pickle would have made: its class and its arguments."""

    function: str
    arguments: tuple[Any, ...] = ()
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    parts: list[Any] = field(default_factory=list)

    def attributes(self) -> Mapping[Any, Any]:
        """Return the attributes that it would have got, as far as they are a dictionary."""
        state = self.state
        if isinstance(state, tuple) and len(state) == 2:  # with __slots__: (__dict__, slots)
            return {**_mapping(state[0]), **_mapping(state[1])}
        return _mapping(state)


@dataclass(frozen=True, slots=True)
class Storage:
    """The elements of one or more tensors, which are stored outside the pickle."""

    kind: str
    key: str
    elements: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: the location of its elements, and its shape."""

    storage: Storage
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OpaqueKey:
    """A key that is not compared with others: comparing nested tuples can take exponential time."""

    value: Any


def loads(data: bytes, limits: Limits = CHECKPOINT) -> Any:
    """Return what a pickle holds: plain values, `Symbol`, `Call`, `Storage` and `Tensor`.

    Containers may contain themselves, and the same value many times: walking them needs a limit.

    Raises:
        UnsafePickle: it is not a pickle, or exceeds a limit.
    """
    return loads_first(data, limits)[0]


def loads_first(data: bytes, limits: Limits = CHECKPOINT) -> tuple[Any, int]:
    """Return the first of several consecutive pickles, and where it ends.

    Raises:
        UnsafePickle: it is not a pickle, or exceeds a limit.
    """
    machine = _SymbolicMachine(data, limits)
    return machine.run(), machine.place


class _SymbolicMachine(Machine):
    """A machine for which calls are values, and which does not measure containers."""

    __slots__ = ()

    def actions(self) -> Mapping[int, Action]:
        return ACTIONS

    def push(self, value: Any) -> None:
        stack = self.stack
        stack.append(value)
        if len(stack) > self.limits.stack:
            raise self.error("too_large", f"more than {self.limits.stack} values at once")

    def push_container(self, value: Any, parts: tuple[Any, ...] = ()) -> None:
        self.made += 1
        if self.made > self.limits.values:
            raise self.error("too_large", f"more than {self.limits.values} containers")
        self.push(value)

    def grow(self, container: Any, parts: tuple[Any, ...]) -> None:
        self.made += len(parts)
        if self.made > self.limits.values:
            raise self.error("too_large", f"more than {self.limits.values} values in containers")

    def top(self, kind: type) -> Any:
        value = self.stack[-1] if self.stack else None
        if type(value) is kind:
            return value
        if isinstance(value, Call) and kind in {list, dict}:
            return value.parts if kind is list else value.items
        if isinstance(value, dict) and kind is list:
            raise self.error("malformed", "a dictionary is filled as a list")
        return super().top(kind)

    def key(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN_KEYS or (
            kind is tuple and len(value) <= 8 and all(type(part) in _PLAIN_KEYS for part in value)
        ):
            return value
        return OpaqueKey(value)


_PLAIN_KEYS = frozenset({*untrusted_pickle.KEYS, Symbol})


def walk(value: Any, limit: int = 1_000_000) -> Iterator[Any]:
    """Yield a value and what it holds, each container once, at most `limit` values."""
    waiting, met = [value], set[int]()
    while waiting and limit > 0:
        limit -= 1
        one = waiting.pop()
        yield one
        if isinstance(one, Tensor):
            waiting.append(one.storage)
        elif isinstance(one, _HOLDERS) and id(one) not in met:
            met.add(id(one))
            waiting.extend(_inside(one))


_HOLDERS = (dict, list, tuple, Call, OpaqueKey)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, Call):
        yield from (value.arguments, value.state, value.items, value.parts)
    elif isinstance(value, OpaqueKey):
        yield value.value
    else:
        yield from value


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _text(machine: Machine, value: Any) -> str:
    if not isinstance(value, str) or len(value) > NAME_CHARACTERS:
        raise machine.error("malformed", "a class is named by something other than a text")
    return value


def _line(machine: Machine) -> str:
    end = machine.data.find(b"\n", machine.place, machine.place + NAME_CHARACTERS)
    if end < 0:
        raise machine.error("malformed", "a name has no end")
    text = machine.data[machine.place : end].decode("utf-8", "backslashreplace")
    machine.place = end + 1
    return text


def _global(machine: Machine) -> None:
    module = _line(machine)
    machine.push(Symbol(f"{module}.{_line(machine)}"))


def _stack_global(machine: Machine) -> None:
    name = _text(machine, machine.pop())
    machine.push(Symbol(f"{_text(machine, machine.pop())}.{name}"))


def _reduce(machine: Machine) -> None:
    arguments, function = machine.pop(), machine.pop()
    machine.push_container(_called(function, arguments))


def _new_object_with_names(machine: Machine) -> None:
    names = machine.pop()
    arguments, function = machine.pop(), machine.pop()
    made = _called(function, arguments)
    if isinstance(made, Call):
        made.state = names
    machine.push_container(made)


def _instance(machine: Machine) -> None:
    module = _line(machine)
    function = Symbol(f"{module}.{_line(machine)}")
    machine.push_container(_called(function, machine.pop_mark()))


def _object(machine: Machine) -> None:
    parts = machine.pop_mark()
    if not parts:
        raise machine.error("malformed", "an object has no class")
    machine.push_container(_called(parts[0], parts[1:]))


def _build(machine: Machine) -> None:
    state = machine.pop()
    if machine.stack and isinstance(machine.stack[-1], Call):
        machine.stack[-1].state = state


def _persistent(machine: Machine) -> None:
    machine.push_container(_storage(machine.pop()))


def _storage(key: Any) -> Any:
    """Return a storage outside of the pickle (torch/serialization.py, persistent_id)."""
    match key:
        case ("storage", Symbol(name=kind), str(name), _, int(elements), *_) if elements >= 0:
            return Storage(kind, name, elements)
    return Call("persistent", (key,))


def _called(function: Any, arguments: Any) -> Any:
    name = function.name if isinstance(function, Symbol) else "unnamed"
    given = arguments if isinstance(arguments, tuple) else ()
    meaning = MEANINGS.get(name)
    known = meaning(given) if meaning is not None else None
    return Call(name, given) if known is None else known


def _ordered(given: tuple[Any, ...]) -> Any:
    return {} if not given else None


def _tuple_of(given: tuple[Any, ...]) -> Any:
    return given[0] if len(given) == 1 and isinstance(given[0], tuple) else None


def _tensor(given: tuple[Any, ...]) -> Any:
    """Return a tensor of (storage, offset, size, stride, ...), as torch/_utils.py rebuilds it."""
    match given:
        case (Storage() as storage, int(), tuple(shape), *_) if len(shape) <= 64:
            if all(type(size) is int for size in shape):
                return Tensor(storage, shape)
    return None


def _first(given: tuple[Any, ...]) -> Any:
    return given[0] if given and isinstance(given[0], Tensor) else None


def _from_type(given: tuple[Any, ...]) -> Any:
    """Return the result of `_rebuild_from_type_v2(function, type, arguments, state)`."""
    match given:
        case (Symbol(name="torch._utils._rebuild_tensor_v2"), _, tuple(inner), *_):
            return _tensor(inner)
    return None


MEANINGS: Mapping[str, Callable[[tuple[Any, ...]], Any]] = {
    "collections.OrderedDict": _ordered,
    "collections.defaultdict": lambda given: {},
    "collections.Counter": _ordered,
    "torch.Size": _tuple_of,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _from_type,
}
"""Calls that are interpreted, None for unknown arguments; all others remain a `Call`."""


def _old_text(width: int) -> Action:
    """Read a Python 2 string, whose encoding is unknown."""

    def action(machine: Machine) -> None:
        machine.push(machine.sized(width, machine.limits.text_bytes).decode("latin-1"))

    return action


def _bytearray(machine: Machine) -> None:
    machine.push(machine.sized(8, machine.limits.text_bytes))


def _frozen_set(machine: Machine) -> None:
    parts = machine.pop_mark()
    machine.grow(None, parts)
    machine.push_container(frozenset(machine.key(part) for part in parts))


def _memoize(machine: Machine) -> None:
    memo = machine.memo
    if not machine.stack or len(memo) >= machine.limits.memo:
        machine.remember(len(memo))
    memo[len(memo)] = machine.stack[-1]


def _get(machine: Machine) -> None:
    key = machine.data[machine.place : machine.place + 1]
    if not key or key[0] not in machine.memo:
        machine.recall(machine.number(1))
    machine.place += 1
    machine.push(machine.memo[key[0]])


ACTIONS: Mapping[int, Action] = untrusted_pickle.by_number(
    {
        **untrusted_pickle.ACTIONS,
        b"c": _global,
        b"\x93": _stack_global,
        b"R": _reduce,
        b"\x81": _reduce,
        b"\x92": _new_object_with_names,
        b"i": _instance,
        b"o": _object,
        b"b": _build,
        b"Q": _persistent,
        b"T": _old_text(4),
        b"U": _old_text(1),
        b"\x96": _bytearray,
        b"\x91": _frozen_set,
        b"\x94": _memoize,
        b"h": _get,
    }
)
"""Opcodes that are executed: plain values, and symbols of objects."""

__all__ = [
    "CHECKPOINT",
    "Call",
    "OpaqueKey",
    "PickleCutOff",
    "Storage",
    "Symbol",
    "Tensor",
    "UnsafePickle",
    "loads",
    "loads_first",
    "walk",
]
