"""`rankscope diff A B`: what changed between two runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.command import InputError, print_json
from rankscope_analyzers.runs.record import (
    SLOWER,
    Difference,
    RecordFormatError,
    differences,
    speed,
    unread,
)
from rankscope_analyzers.text.console import open_console
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.text.wording import duration

FAILURES: tuple[type[Exception], ...] = (InputError,)

MAXIMUM_BYTES = 64 << 20
"""Bytes: the record of 16,384 ranks has some 4 MB."""


def run(options: argparse.Namespace) -> int:
    """Print what differs.

    Raises:
        InputError: a file cannot be read, or is not a run record.
    """
    before, after = _read(options.before), _read(options.after)
    try:
        found = differences(before, after)
    except RecordFormatError as error:
        raise InputError(
            f"{options.before} or {options.after} is not a run record: {error}"
        ) from None
    ratio = speed(before, after)
    runs = ((options.before, before), (options.after, after))
    gaps = {str(path): unread(run) for path, run in runs}
    if options.json:
        differing = [asdict(one) for one in found]
        print_json({"step_time_ratio": ratio, "differences": differing, "unread": gaps})
        return 0
    console = open_console(no_color=options.no_color)
    console.print(_headline(before, after, ratio), markup=False)
    if found:
        console.print(_table(options, found))
    elif any(gaps.values()):
        console.print("Nothing differs in what both records have.")
    else:
        console.print("Images, command, versions, variables and placement are the same.")
    for path, sentences in gaps.items():
        for sentence in sentences:
            console.print(visible(f"Not read for {path}: {sentence}"), markup=False)
    return 0


def _table(options: argparse.Namespace, found: Sequence[Difference]) -> Table:
    table = Table(box=None)
    for name in ("what", "name", str(options.before), str(options.after)):
        table.add_column(escape(name))
    for one in found:
        table.add_row(
            *(escape(visible(text)) for text in (one.subject, one.name, one.before, one.after))
        )
    return table


def _headline(before: Mapping[str, Any], after: Mapping[str, Any], ratio: float | None) -> str:
    if ratio is None:
        return "One of the runs has no step records, so it is unknown which is faster."
    steps = (float(before["median_step_seconds"]), float(after["median_step_seconds"]))
    sentence = f"Median step {duration(steps[0])} before, {duration(steps[1])} now: "
    if 1 / SLOWER < ratio < SLOWER:
        return sentence + "no change."
    verb = "slower" if ratio >= SLOWER else "faster"
    return sentence + f"{verb}, {ratio:.2f} times as long."


def _read(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAXIMUM_BYTES + 1)
        document = untrusted_json.read(data) if len(data) <= MAXIMUM_BYTES else None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise InputError(f"{path} is not a run record: rankscope record writes them")
    return document
