"""How far lines that a paste broke are put together again: at each limit and just beyond it."""

from __future__ import annotations

import pytest

from rankscope_analyzers.logs.hard_wraps import unwrap
from test_hard_wraps import at_column, at_column_without_blanks

PREFIX = "gpu-00:4001:4071 [0] NCCL INFO "
CONNECTION = f"{PREFIX}Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/3/GDRDMA"


def pasted(text, width, breaker=at_column):
    """Return lines as a paste broke them, and what is made of them again."""
    return unwrap("".join(f"{part}\n" for part in breaker(text, width)).encode()).decode()


def timings(length):
    """Return a line of NCCL's of so many characters, whose end is known."""
    head, tail = f"{PREFIX}Init timings ", ": rank 0 nranks 16 total 1.23 ("
    filling = length - len(head) - len(tail) - 191
    return f"{head}{'x' * filling}{tail}{'y' * 190})"


@pytest.mark.parametrize(("pieces", "joined"), [(8, True), (9, False)])
def test_a_record_in_eight_lines_proves_that_a_log_was_wrapped(pieces, joined):
    record = timings(39 * 8 + (pieces - 8))
    assert len(at_column(record, 39)) == pieces
    assert (pasted(record, 39) == f"{record}\n") is joined


def test_the_rest_of_a_broken_prefix_is_found_behind_a_long_word():
    begin, rest = b"gpu-00:40", b"01:4071 [0] " + b"x" * 79 + b" NCCL INFO Using network IB\n"
    assert unwrap(begin + b"\n" + rest) == begin + rest


@pytest.mark.parametrize(("blanks", "width", "joined"), [(3, 55, True), (5, 77, False)])
def test_up_to_four_lost_blanks_between_the_ranks_of_a_ring_are_put_back(blanks, width, joined):
    between = " " * blanks
    ring = f"{PREFIX}Channel 00/02 : {between}{between.join(map(str, range(60)))}"
    proof = "\n".join(at_column_without_blanks(CONNECTION, width))
    lines = "\n".join(at_column_without_blanks(ring, width))
    assert (ring.encode() in unwrap(f"{lines}\n{proof}\n".encode())) is joined
