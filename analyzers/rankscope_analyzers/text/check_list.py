"""Draws what checks conclude so that it reads well from 80 columns on.

Verdict and name stand in two narrow columns; what was seen, what was expected and what to do stand
below each other in the third, which takes the rest of the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Row:
    """What one check concludes.

    Args:
        verdict: one or two words.
        style: in which the verdict is printed.
        name: of the check.
        seen: what there is, or why nothing can be said.
        expected: what there should be, empty where there is nothing to complain about.
        remedy: what to do, empty where there is nothing to be done.
    """

    verdict: str
    style: str
    name: str
    seen: str
    expected: str = ""
    remedy: str = ""


def table(rows: Iterable[Row], title: str = "") -> Table:
    """Return rows as they are printed, under a title."""
    drawn = Table(title=escape(title) or None, title_justify="left", box=None, show_header=False)
    for _ in ("verdict", "name"):
        drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for row in rows:
        lines = [
            Text(row.seen),
            *_labelled("expected", row.expected),
            *_labelled("to do", row.remedy),
        ]
        drawn.add_row(Text(row.verdict, row.style), Text(row.name), Text("\n").join(lines))
    return drawn


def _labelled(label: str, text: str) -> list[Text]:
    return [Text.assemble((f"{label}: ", "bold"), text)] if text else []
