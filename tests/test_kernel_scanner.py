"""Lines that may state something are found by their shapes, however many other lines there are."""

from __future__ import annotations

import random
import string

import pytest

from kernel_text import log_of, xid
from rankscope_agent.contract.kernel import scanner
from rankscope_agent.contract.kernel.log import KernelLog, read
from rankscope_agent.contract.kernel.matcher import RULES, shape
from rankscope_agent.contract.kernel.scanner import LineFilter
from test_kernel_events import LINES

MAX_SHAPES_BYTES = 2 << 20

MINIMUM_LETTERS = 2
"""Of a needle in a shape: one letter stands in nearly every line."""


def names(count: int) -> list[str]:
    chosen = random.Random(3)
    return ["".join(chosen.choices(string.ascii_lowercase, k=24)) for _ in range(count)]


def test_lines_that_differ_in_numbers_only_have_one_shape():
    lines = (
        b"[1.0] NVRM: Xid (PCI:0000:3b:00): 45, pid=71",
        b"[7.5] NVRM: Xid (PCI:0000:af:00): 13, pid=8",
    )
    assert shape(lines[0]) == shape(lines[1])
    assert shape(b"a\nb\n") == b"\n\n"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.needle.strip())
def test_every_needle_leaves_letters_that_can_be_looked_for(rule):
    assert len(shape(rule.needle.encode())) >= MINIMUM_LETTERS
    assert not rule.also or len(shape(rule.also.encode())) >= MINIMUM_LETTERS


@pytest.mark.parametrize("line", [line for line, _, _ in LINES])
def test_a_line_gives_the_same_event_among_others_as_alone(line):
    others = [f"[{n}.5] {name}: state changed" for n, name in enumerate(names(200))]
    found = log_of(*others[:100], f"[99.5] {line}", *others[100:]).seen
    assert [one.event for one in found] == [read(f"[99.5] {line}".encode())]


def test_a_programs_line_of_the_same_shape_does_not_hide_the_kernels():
    forged, real = f"12,1,2,-;{xid(79)}", f"4,7,9,-;{xid(79)}"
    assert shape(forged.encode()) == shape(real.encode())
    assert [one.count for one in log_of(forged, real, forged).seen] == [1]


def test_what_is_remembered_of_shapes_is_bounded_and_forgetting_loses_no_event(monkeypatch):
    monkeypatch.setattr(scanner, "MAX_SHAPES_BYTES", 2000)
    log = KernelLog()
    for number, name in enumerate(names(400)):
        log.feed(f"{name} {name}\n[{number}.0] {xid(13)}\n".encode())
    assert [one.count for one in log.seen] == [400]


def test_shapes_that_never_come_again_are_forgotten():
    line_filter, remembered = LineFilter(), []
    size = 1 << 16
    for number in range(3 * MAX_SHAPES_BYTES // size):
        assert line_filter.relevant([b"x" * (size - 10) + b"%10d" % number]) == {}
        remembered.append(line_filter.remembered_bytes)
    assert max(remembered) == MAX_SHAPES_BYTES + size
