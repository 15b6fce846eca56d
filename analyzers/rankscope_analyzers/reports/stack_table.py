"""The stacks of a job's ranks as a table, for a terminal of 80 columns and for reports."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from rankscope_agent.contract.flight_dump import Frame
from rankscope_analyzers.profiles.stacks import GroupedStacks
from rankscope_analyzers.text.name_lists import ranks_listed, ranks_named
from rankscope_analyzers.text.sanitize import visible

MOST_GROUPS = 12
"""Groups shown: if there are more different stacks, the table helps nobody."""

COLUMNS = ("ranks", "stand in", "differ from the others in", "")

PATH_PARTS = 2
"""Parts shown of a file's path: the module and its package."""

NO_FRAME = "no Python frame"


def rows(grouped: GroupedStacks) -> tuple[tuple[str, str, str, str], ...]:
    """Return the table's rows: ranks, their frame, the frame where they part, and the meaning."""
    shown = tuple(
        (
            ranks_listed(one.ranks),
            _place(one.stack[0]) if one.stack else NO_FRAME,
            _place(one.parting) if one.parting else "",
            "suspect" if one.suspect else "",
        )
        for one in grouped.groups[:MOST_GROUPS]
    )
    rest = grouped.groups[MOST_GROUPS:]
    if not rest:
        return shown
    ranks = [rank for one in rest for rank in one.ranks]
    return (*shown, (ranks_listed(ranks), f"{len(rest)} more places", "", ""))


def table(grouped: GroupedStacks) -> Table:
    """Return the table, suspects first; ranks without a stack are listed below it."""
    drawn = Table(title=title(grouped), title_justify="left", box=None)
    for name in COLUMNS:
        drawn.add_column(name, overflow="fold")
    for row in rows(grouped):
        style = "red" if row[-1] else ""
        drawn.add_row(*(Text(visible(cell), style=style) for cell in row))
    if grouped.silent:
        drawn.caption = f"There is no stack for {ranks_named(grouped.silent)}."
        drawn.caption_justify = "left"
    return drawn


def title(grouped: GroupedStacks) -> str:
    """Describe in one sentence what the stacks show."""
    suspects = [rank for one in grouped.groups if one.suspect for rank in one.ranks]
    if suspects:
        verb = "stands" if len(suspects) == 1 else "stand"
        names = ranks_named(suspects)
        return f"{names[:1].upper()}{names[1:]} {verb} elsewhere than most ranks"
    if len(grouped.groups) == 1:
        return "All ranks with known stacks are in the same place"
    return "No stack is that of most ranks" if grouped.groups else "No stack is known"


def _place(frame: Frame) -> str:
    file = "/".join(frame.file.split("/")[-PATH_PARTS:])
    return f"{frame.function} {file}:{frame.line}"
