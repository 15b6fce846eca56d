"""How much a call does, counted: the same on a slow machine and on a busy one.

What a function in C does counts as one bytecode: of regular expressions, `unbounded` tells.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

_PARSER: Any = getattr(re, "_parser", None) or importlib.import_module("sre_parse")  # until 3.10
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def bytecodes(call: Callable[[], object]) -> int:
    """Return how many bytecodes of Python a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # a collection calls what others hooked into it, which counts as well
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


def counted_waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each call of `asyncio.wait` adds how many it waits for."""
    waits: list[int] = []
    wait = asyncio.wait

    async def counting(awaited: Any, **options: Any) -> Any:
        waits.append(len(awaited))
        return await wait(awaited, **options)

    monkeypatch.setattr(asyncio, "wait", counting)
    return waits


def unbounded(pattern: re.Pattern[str]) -> list[str]:
    """Return the repetitions of a pattern without an upper limit that something else follows.

    From each position they may read the whole text, in vain if what follows does not match.
    """
    return list(_unbounded(_PARSER.parse(pattern.pattern, pattern.flags), is_last=True))


def _unbounded(parts: Any, is_last: bool) -> Iterator[str]:
    for place, (operation, given) in enumerate(parts):
        ends = is_last and place == len(parts) - 1
        name = str(operation)
        if name in _REPEATS:
            _, most, repeated = given
            if most == _PARSER.MAXREPEAT and not ends:
                yield str(repeated)
            yield from _unbounded(repeated, is_last=False)
        elif name == "BRANCH":
            for branch in given[1]:
                yield from _unbounded(branch, is_last=ends)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            yield from _unbounded(given[-1] if name == "SUBPATTERN" else given, is_last=ends)
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from _unbounded(given[1], is_last=False)
