"""Reads pickles of untrusted writers without `pickle`: yields plain values and calls nothing.

A stack machine with a whitelist of opcodes. Opcodes that name, build or call an object are refused,
and so is whatever exceeds a limit, before memory is spent on it: a pickle of nine bytes can
announce an integer of 4 GB, and sixty opcodes can build a list of 2^60 elements by putting one list
twice into the next. Opcodes: CPython's Modules/_pickle.c and Lib/pickletools.py; the text opcodes
of protocols 0 and 1 are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rankscope_agent.contract.pickle_limits import (
    MAX_PROTOCOL,
    USUAL,
    Limits,
    PickleCutOff,
    Reason,
    UnsafePickle,
)


def loads(data: bytes, limits: Limits = USUAL) -> Any:
    """Return the value of a pickle: None, bool, int, float, str, bytes, list, tuple, dict or set.

    Raises:
        UnsafePickle: it uses other opcodes, violates their grammar, or exceeds a limit.
    """
    if len(data) > limits.data_bytes:
        raise UnsafePickle("too_large", f"{len(data)} bytes, at most {limits.data_bytes} are read")
    return Machine(data, limits).run()


class Mark:
    """The position on the stack at which a container's elements begin."""


MARK: Final = Mark()


@dataclass(slots=True)
class _Size:
    """The number of values met when walking a container, and its nesting depth."""

    total: int = 1
    depth: int = 1


@dataclass(slots=True)
class Machine:
    """A stack, a memo, and a position in the data.

    A container may be changed only while it is on top of the stack and inside no other container;
    once inside another one, it is final. So its size is known when it is inserted, and no container
    can contain itself.
    """

    data: bytes
    limits: Limits
    place: int = 0
    made: int = 0
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    sizes: dict[int, _Size] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    kept: list[Any] = field(default_factory=list)

    def run(self) -> Any:
        """Execute opcodes until the last one, and return what is left."""
        data, end, actions = self.data, len(self.data), self.actions()
        for _ in range(self.limits.opcodes):
            place = self.place
            if place >= end:
                raise PickleCutOff(f"at byte {place}: it has no end")
            self.place = place + 1
            action = actions.get(data[place])
            if action is not None:
                action(self)
            elif data[place] == STOP:
                return self.result()
            else:
                code = data[place : place + 1]
                raise self.error("refused_opcode", f"opcode {code!r} is not one of plain values")
        raise self.error("too_large", f"more than {self.limits.opcodes} opcodes")

    def actions(self) -> Mapping[int, Action]:
        """Return what each opcode does, by its number."""
        return PLAIN_ACTIONS

    def key(self, value: Any) -> Any:
        """Return a value for use as a key of a dictionary or an element of a set."""
        if type(value) not in KEYS:
            raise self.error("refused_opcode", f"{type(value).__name__} as a key")
        return value

    def result(self) -> Any:
        """Return the only value left."""
        if len(self.stack) != 1 or self.stack[0] is MARK:
            raise self.error("malformed", f"{len(self.stack)} values are left at the end, not one")
        return self.stack[0]

    def error(self, reason: Reason, seen: str) -> UnsafePickle:
        """Return an error that states the position."""
        return UnsafePickle(reason, f"at byte {self.place}: {seen}")

    def take(self, count: int) -> bytes:
        """Consume the next bytes."""
        begin, end = self.place, self.place + count
        if end > len(self.data):
            left = len(self.data) - begin
            raise PickleCutOff(f"at byte {begin}: {count} bytes are announced, {left} are left")
        self.place = end
        return self.data[begin:end]

    def number(self, width: int, *, signed: bool = False) -> int:
        """Consume the next bytes as a little-endian number."""
        return int.from_bytes(self.take(width), "little", signed=signed)

    def sized(self, width: int, limit: int) -> bytes:
        """Consume bytes preceded by their length, which is checked first."""
        length = self.number(width)
        if length > limit:
            raise self.error("too_large", f"{length} bytes in one value, at most {limit} are read")
        return self.take(length)

    def push(self, value: Any) -> None:
        """Push a value onto the stack."""
        self.made += 1
        if self.made > self.limits.values:
            raise self.error("too_large", f"more than {self.limits.values} values")
        if len(self.stack) >= self.limits.stack:
            raise self.error("too_large", f"more than {self.limits.stack} values at once")
        self.stack.append(value)

    def push_container(self, value: Any, parts: tuple[Any, ...] = ()) -> None:
        """Push a new container with its elements onto the stack."""
        self.kept.append(value)  # its id identifies it for as long as the machine runs
        self.sizes[id(value)] = _Size()
        self.grow(value, parts)
        self.push(value)

    def grow(self, container: Any, parts: tuple[Any, ...]) -> None:
        """Record that a container receives these elements."""
        size = self.sizes[id(container)]
        for part in parts:
            inner = self.sizes.get(id(part)) if isinstance(part, CONTAINERS) else None
            if part is container:
                raise self.error("malformed", "a container is inserted into itself")
            if inner is not None:
                self.finished.add(id(part))
            size.total += inner.total if inner else 1
            size.depth = max(size.depth, 1 + (inner.depth if inner else 0))
        if size.total > self.limits.total or size.depth > self.limits.depth:
            raise self.error(
                "too_large",
                f"{size.total} values in {size.depth} levels, at most"
                f" {self.limits.total} in {self.limits.depth} are read",
            )

    def pop(self) -> Any:
        """Pop the last value."""
        if not self.stack or self.stack[-1] is MARK:
            raise self.error("malformed", "expected a value, but the stack is empty")
        return self.stack.pop()

    def pop_mark(self) -> tuple[Any, ...]:
        """Pop the values above the last mark, and the mark."""
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is MARK:
                parts = tuple(self.stack[index + 1 :])
                del self.stack[index:]
                return parts
        raise self.error("malformed", "expected a mark, but there is none")

    def discard(self) -> None:
        """Discard the last value, or the last mark."""
        if self.stack and self.stack[-1] is MARK:
            self.stack.pop()
        else:
            self.pop()

    def duplicate(self) -> None:
        """Push the last value again."""
        value = self.pop()
        self.stack.append(value)
        self.push(value)

    def top(self, kind: type) -> Any:
        """Return the container on top, which must not be inside another one yet."""
        if not self.stack or type(self.stack[-1]) is not kind:
            raise self.error("malformed", f"there is no {kind.__name__} to fill")
        if id(self.stack[-1]) in self.finished:
            raise self.error("malformed", f"a {kind.__name__} inside another container is filled")
        return self.stack[-1]

    def remember(self, key: int) -> None:
        """Store the last value in the memo."""
        if not self.stack or self.stack[-1] is MARK:
            raise self.error("malformed", "there is no value for the memo")
        if len(self.memo) >= self.limits.memo and key not in self.memo:
            raise self.error("too_large", f"more than {self.limits.memo} values in the memo")
        self.memo[key] = self.stack[-1]

    def recall(self, key: int) -> None:
        """Push a value from the memo."""
        if key not in self.memo:
            raise self.error("malformed", f"the memo has no entry {key}")
        self.push(self.memo[key])


CONTAINERS = (list, tuple, dict, set, frozenset)

Action = Callable[[Any], None]


def _protocol(machine: Machine) -> None:
    version = machine.number(1)
    if version > MAX_PROTOCOL:
        raise machine.error("malformed", f"protocol {version}, at most {MAX_PROTOCOL} is supported")


def _frame(machine: Machine) -> None:
    if machine.number(8) > len(machine.data) - machine.place:
        raise machine.error("malformed", "a frame is longer than the pickle")


def _long(width: int) -> Action:
    def action(machine: Machine) -> None:
        body = machine.sized(width, machine.limits.integer_bytes)
        machine.push(int.from_bytes(body, "little", signed=True))

    return action


def _text(width: int) -> Action:
    def action(machine: Machine) -> None:
        body = machine.sized(width, machine.limits.text_bytes)
        try:
            machine.push(body.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            raise machine.error("malformed", f"invalid text: {error.reason}") from error

    return action


def _bytes(width: int) -> Action:
    return lambda machine: machine.push(machine.sized(width, machine.limits.text_bytes))


def _constant(value: bool | None) -> Action:
    return lambda machine: machine.push(value)


def _integer(width: int, *, signed: bool = False) -> Action:
    return lambda machine: machine.push(machine.number(width, signed=signed))


def _put(width: int) -> Action:
    return lambda machine: machine.remember(machine.number(width))


def _get(width: int) -> Action:
    return lambda machine: machine.recall(machine.number(width))


def _float(machine: Machine) -> None:
    machine.push(struct.unpack(">d", machine.take(8))[0])


def _tuple(count: int) -> Action:
    def action(machine: Machine) -> None:
        parts = tuple(reversed([machine.pop() for _ in range(count)]))
        machine.push_container(parts, parts)

    return action


def _marked_tuple(machine: Machine) -> None:
    parts = machine.pop_mark()
    machine.push_container(parts, parts)


def _append(machine: Machine) -> None:
    _extend(machine, (machine.pop(),))


def _extend(machine: Machine, parts: tuple[Any, ...]) -> None:
    target = machine.top(list)
    machine.grow(target, parts)
    target.extend(parts)


def _set_items(machine: Machine, parts: tuple[Any, ...]) -> None:
    target = machine.top(dict)
    if len(parts) % 2:
        raise machine.error("malformed", "a key has no value")
    keys = [machine.key(key) for key in parts[::2]]
    machine.grow(target, parts)
    target.update(zip(keys, parts[1::2], strict=True))


def _set_item(machine: Machine) -> None:
    value, key = machine.pop(), machine.pop()
    _set_items(machine, (key, value))


def _add_items(machine: Machine) -> None:
    parts = machine.pop_mark()
    target = machine.top(set)
    keys = [machine.key(part) for part in parts]
    machine.grow(target, parts)
    target.update(keys)


def _pop_mark(machine: Machine) -> None:
    machine.pop_mark()


KEYS = (str, int, bool, bytes, type(None))
"""Types of keys: comparing them is cheap, unlike nested tuples; floats may be NaN."""

ACTIONS: Mapping[bytes, Action] = {
    b"\x80": _protocol,
    b"\x95": _frame,
    b"N": _constant(None),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b"J": _integer(4, signed=True),
    b"K": _integer(1),
    b"M": _integer(2),
    b"\x8a": _long(1),
    b"\x8b": _long(4),
    b"G": _float,
    b"X": _text(4),
    b"\x8c": _text(1),
    b"\x8d": _text(8),
    b"B": _bytes(4),
    b"C": _bytes(1),
    b"\x8e": _bytes(8),
    b")": _tuple(0),
    b"\x85": _tuple(1),
    b"\x86": _tuple(2),
    b"\x87": _tuple(3),
    b"t": _marked_tuple,
    b"]": lambda machine: machine.push_container([]),
    b"a": _append,
    b"e": lambda machine: _extend(machine, machine.pop_mark()),
    b"}": lambda machine: machine.push_container({}),
    b"s": _set_item,
    b"u": lambda machine: _set_items(machine, machine.pop_mark()),
    b"\x8f": lambda machine: machine.push_container(set()),
    b"\x90": _add_items,
    b"(": lambda machine: machine.push(MARK),
    b"0": Machine.discard,
    b"1": _pop_mark,
    b"2": Machine.duplicate,
    b"q": _put(1),
    b"r": _put(4),
    b"\x94": lambda machine: machine.remember(len(machine.memo)),
    b"h": _get(1),
    b"j": _get(4),
}
"""The default actions: opcodes that create plain values."""

STOP = ord(".")


def by_number(actions: Mapping[bytes, Action]) -> Mapping[int, Action]:
    """Return a table in the form in which the machine looks opcodes up."""
    return {code[0]: action for code, action in actions.items()}


PLAIN_ACTIONS = by_number(ACTIONS)
