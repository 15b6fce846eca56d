"""What a pickle of an untrusted writer may take, and what is raised of one that takes more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reason = Literal["malformed", "refused_opcode", "too_large"]

MAX_PROTOCOL = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pickle may take.

    Args:
        data_bytes: size of the pickle.
        text_bytes: size of one text, or of one piece of bytes.
        integer_bytes: width of an integer: 9 hold what 64 bits do with or without a sign.
        values: values that are made, and references to earlier ones.
        memo: values that are remembered.
        stack: values that are open at once.
        depth: how deeply containers stand in each other.
        total: values as who walks the result meets them, those named twice counted twice.
        opcodes: opcodes that are obeyed.
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
"""For a Flight Recorder's dump: 20,000 entries with stacks of 20 frames take half of it."""


class UnsafePickle(ValueError):  # noqa: N818 - what it is, not what went wrong
    """A pickle that is not read; the text says why and where, `reason` is one of `Reason`."""

    def __init__(self, reason: Reason, seen: str) -> None:
        super().__init__(seen)
        self.reason: Reason = reason


class PickleCutOff(UnsafePickle):
    """A pickle that ends before its last opcode."""

    def __init__(self, seen: str) -> None:
        super().__init__("malformed", seen)
