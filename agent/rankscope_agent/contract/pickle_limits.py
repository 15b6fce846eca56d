"""Limits on a pickle from an untrusted writer, and the errors raised for one that exceeds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reason = Literal["malformed", "refused_opcode", "too_large"]

MAX_PROTOCOL = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on a pickle.

    Args:
        data_bytes: size of the pickle.
        text_bytes: size of one string, or of one bytes object.
        integer_bytes: width of an integer: 9 bytes hold any 64-bit integer, signed or unsigned.
        values: values that are created, and references to earlier ones.
        memo: values in the memo.
        stack: values on the stack at a time.
        depth: nesting depth of containers.
        total: values met when walking the result; shared values count once per reference.
        opcodes: opcodes that are executed.
    """

    data_bytes: int = 64 << 20
    text_bytes: int = 1 << 16
    integer_bytes: int = 9
    values: int = 6_000_000
    memo: int = 1_000_000
    stack: int = 100_000
    depth: int = 32
    total: int = 8_000_000
    opcodes: int = 12_000_000


USUAL = Limits()
"""For a dump of the Flight Recorder: 20,000 entries with stacks of 20 frames use half of it."""


class UnsafePickle(ValueError):  # noqa: N818 - what it is, not what went wrong
    """A pickle that was refused; the text says why and where, `reason` is one of `Reason`."""

    def __init__(self, reason: Reason, seen: str) -> None:
        super().__init__(seen)
        self.reason: Reason = reason


class PickleCutOff(UnsafePickle):
    """A pickle that ends before its last opcode."""

    def __init__(self, seen: str) -> None:
        super().__init__("malformed", seen)
