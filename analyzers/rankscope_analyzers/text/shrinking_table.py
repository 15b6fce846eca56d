"""A table that leaves optional columns out on a narrow terminal.

Rich would shrink all columns until the cells of the first ones are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

PADDING = 2
"""Blanks around each cell."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Args:
        head: its heading.
        cells: one for each row.
        is_number: aligned to the right.
        least: characters below which its cells are unreadable; 0 if none of them may be folded.
        fixed: characters to which its cells are folded, None for what there is room for.
    """

    head: str
    cells: Sequence[Text]
    is_number: bool = False
    least: int = 0
    fixed: int | None = None

    @property
    def width(self) -> int:
        """Return the least width."""
        return self.least or max(len(self.head), *(len(cell) for cell in self.cells), 0)


class ShrinkingTable(Table):
    """A table, or a narrower one if it does not fit.

    Args:
        columns: its columns.
        optional: headings of columns to leave out, those that are left out first before others.
        styles: one for each row.
        title: of the table.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        optional: Sequence[frozenset[str]],
        styles: Sequence[str],
        title: str,
    ) -> None:
        super().__init__(title=title, title_justify="left", box=None)
        for column in columns:
            self.add_column(
                column.head,
                justify="right" if column.is_number else "left",
                overflow="fold",
                no_wrap=not column.least,
                width=column.fixed,
            )
        for style, *cells in zip(styles, *(column.cells for column in columns), strict=True):
            self.add_row(*cells, style=style)
        self._least = sum(column.width + PADDING for column in columns)
        self._narrower: Any = None
        if optional:
            kept = [column for column in columns if column.head not in optional[0]]
            self._narrower = ShrinkingTable(kept, optional[1:], styles, title)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table or the narrower one."""
        if self._narrower is not None and options.max_width < self._least:
            yield self._narrower
        else:
            yield from super().__rich_console__(console, options)
