"""`rankscope fabric-check`: a collective benchmark between the ranks of a launcher."""

from __future__ import annotations

import argparse
import re

from rankscope_analyzers.command import InputError, print_json
from rankscope_analyzers.commands import fabric_pods
from rankscope_analyzers.fabric import report
from rankscope_analyzers.text.console import open_console

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
LARGEST_BYTES = 8 << 30


class CheckFailedError(Exception):
    """The ranks could not measure; the message says why."""


FAILURES: tuple[type[Exception], ...] = (InputError, CheckFailedError)


def run(options: argparse.Namespace) -> int:
    """Measure as one rank; rank 0 prints. 0 nothing is slow, 2 something is, 3 nothing to compare.

    Raises:
        InputError: an option cannot be used, or torch is not installed.
        CheckFailedError: ranks do not connect, or a collective fails.
    """
    sizes = sorted(size_bytes(text) for text in options.sizes.split(","))
    link = size_bytes(options.link_size)
    if options.manifest:
        fabric_pods.print_objects(options, _flags(options), _longest(options, len(sizes)))
        return 0
    try:
        from rankscope_analyzers.fabric import measure  # torch takes seconds to import
    except ImportError as error:
        raise InputError(f"fabric-check measures with torch, which is absent: {error}") from None
    plan = measure.Plan(options.backend, sizes, link, options.seconds, options.timeout)
    try:
        measured = measure.measure(plan)
    except measure.FabricError as error:
        raise CheckFailedError(str(error)) from error
    if measured is None:
        return 0  # rank 0 has the answer
    found = report.conclude(measured, options.minimum)
    if options.json:
        print_json(report.as_object(found))
    else:
        console = open_console(no_color=options.no_color)
        console.print(report.table(measured))
        for line in report.lines(found):
            console.print(line, markup=False, highlight=False)
    return found.exit_code


def _flags(options: argparse.Namespace) -> list[str]:
    """Return the options of the measurement as words of a command line."""
    words = [
        f"--sizes={options.sizes}",
        f"--link-size={options.link_size}",
        f"--seconds={options.seconds:g}",
        f"--timeout={options.timeout:g}",
    ]
    words += [f"--backend={options.backend}"] if options.backend else []
    words += [f"--minimum={options.minimum * 8 / 1e9:g}"] if options.minimum else []
    return [*words, *(["--json"] if options.json else [])]


def _longest(options: argparse.Namespace, sizes: int) -> float:
    """Return the seconds that a check may take: ranks wait for each other once at most."""
    return float(2 * options.timeout + sizes * options.seconds)


def size_bytes(text: str) -> int:
    """Return the bytes of a size such as `16M`.

    Raises:
        InputError: it is invalid, or larger than any sensible message.
    """
    match = re.fullmatch(r"(\d{1,12})([kKmMgG]?)", text.strip())
    size = int(match[1]) * UNITS[match[2].lower()] if match else 0
    if not 4 <= size <= LARGEST_BYTES:
        raise InputError(f"a size is a number of bytes from 4 to 8G such as 16M, not {text!r}")
    return size
