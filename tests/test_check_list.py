"""What checks conclude is printed in 80 columns and more, with nothing cut and no word broken."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rankscope_analyzers.text.check_list import Row, table

ROWS = (
    Row("not applicable", "cyan", "attachment-definition", "cloud.google.com/gce-topology-block"),
    Row("fail", "red", "numa", "cpu [4]: none", "the same number as [limit]", "make them equal"),
)


def printed(width):
    text = io.StringIO()
    Console(file=text, width=width).print(table(ROWS, "job [a]"))
    return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_expectation_and_remedy_stand_below_what_was_seen(width):
    assert printed(width) == [
        "job [a]",
        " not applicable  attachment-definition  cloud.google.com/gce-topology-block",
        " fail            numa                   cpu [4]: none",
        "                                        expected: the same number as [limit]",
        "                                        to do: make them equal",
    ]


def test_what_is_too_long_for_the_terminal_is_folded_and_never_cut():
    lines = printed(60)
    assert max(map(len, lines)) <= 60
    assert "cloud.google.com/gce-topology-block" in "".join(line.strip() for line in lines)
