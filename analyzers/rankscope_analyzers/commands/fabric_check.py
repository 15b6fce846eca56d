"""`rankscope fabric-check`: a collective benchmark between the ranks of a launcher."""

from __future__ import annotations

import argparse
import re

from rankscope_analyzers.command import InputError, add_output, print_json
from rankscope_analyzers.commands import fabric_pods
from rankscope_analyzers.fabric import report
from rankscope_analyzers.text.console import open_console

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
LARGEST_BYTES = 8 << 30
MOST_SECONDS = 600.0


class CheckFailedError(Exception):
    """The ranks could not measure; the message says why."""


FAILURES: tuple[type[Exception], ...] = (InputError, CheckFailedError)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is measured, and what is expected."""
    parser.add_argument(
        "--backend",
        choices=("gloo", "nccl"),
        default="",
        help="backend to measure (default: nccl with GPUs, otherwise gloo)",
    )
    parser.add_argument(
        "--sizes",
        default="64K,1M,16M",
        metavar="SIZES",
        help="message sizes of the all-reduces, in bytes or with K, M or G (default %(default)s)",
    )
    parser.add_argument(
        "--link-size",
        default="8M",
        metavar="SIZE",
        help="message size for measuring a link (default %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=2.0,
        metavar="SECONDS",
        help="time for the all-reduces of one size (default %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long ranks wait for each other (default %(default)s)",
    )
    parser.add_argument(
        "--minimum", type=_gigabits, metavar="GBIT", help="minimum rate of a typical link in Gbit/s"
    )
    fabric_pods.add_arguments(parser)
    add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Measure as one rank; rank 0 prints. 0 nothing is slow, 2 something is, 3 nobody to compare.

    Raises:
        InputError: an option cannot be used, or torch is not installed.
        CheckFailedError: ranks do not meet, or a collective fails.
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
    """Return the options that say what is measured, as words of a command line."""
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
        InputError: it is none, or larger than any message should be.
    """
    match = re.fullmatch(r"(\d{1,12})([kKmMgG]?)", text.strip())
    size = int(match[1]) * UNITS[match[2].lower()] if match else 0
    if not 4 <= size <= LARGEST_BYTES:
        raise InputError(f"a size is a number of bytes from 4 to 8G such as 16M, not {text!r}")
    return size


def _seconds(text: str) -> float:
    return _positive(text, MOST_SECONDS, "seconds")


def _gigabits(text: str) -> float:
    return _positive(text, 1e6, "Gbit/s") * 1e9 / 8


def _positive(text: str, most: float, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:
        raise argparse.ArgumentTypeError(f"expected {unit} above 0, at most {most:g}, not {text!r}")
    return value
