"""The interface of a `rankscope` subcommand, and how its failures reach the user."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn, Protocol

from rankscope_analyzers.text import finite_json
from rankscope_analyzers.text.plain_lines import shown

STANDARD_OUTPUT = Path("-")
"""What an option for a file accepts instead of one."""

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

LONGEST_SECONDS = 100_000 * 86400.0
"""Longest time that an option takes: Python counts the nanoseconds of a pause in 63 bits, 106,751
days."""


class InputError(Exception):
    """The command was called wrongly; the message says what was seen and what to do."""


class UsageError(SystemExit):
    """The options of a command are wrong, and the user has been told; ends the program with 1.

    Args:
        sentence: what the user was told, without the command's name.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(1)
        self.sentence = sentence


class Arguments(Protocol):
    """The interface of a module of a command's options; it imports nothing that takes long."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        ...


class Command(Protocol):
    """The interface of a command's module; it is imported when the command runs."""

    @property
    def FAILURES(self) -> tuple[type[Exception], ...]:  # noqa: N802 - a module's constant
        """Return the errors of `run` that the user sees as a message."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Run the command and return its exit code."""
        ...


class Parser(argparse.ArgumentParser):
    """argparse with one sentence and exit code 1 for a usage error.

    A misspelt option is named as such. argparse would first complain about the one that is missing
    as it was misspelt.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, none of which may look like an option that does not exist."""
        if args is not None and self._subparsers is None:
            for name in _named_options(args):
                if not any(one.startswith(name) for one in self._option_string_actions):
                    self.error(f"unrecognized arguments: {name}{self._meant(name)}")
        return super().parse_known_args(args, namespace)

    def _meant(self, name: str) -> str:
        """Return what the user of an unknown option may want: other commands have some of them."""
        for one in self._get_positional_actions():
            if name == f"--{one.dest}":
                return f" (give {one.metavar or one.dest} without it)"
        return alike(name, self._option_string_actions)

    def error(self, message: str) -> NoReturn:
        """Print the sentence, and exit.

        Raises:
            UsageError: always.
        """
        sentence = f"{message}; see {self.prog} --help"
        sys.stderr.write(f"{self.prog}: {sentence}\n")
        raise UsageError(sentence)


def alike(name: str, known: Iterable[str]) -> str:
    """Return a question for the known name that looks like a misspelt one, empty if none does."""
    difflib = import_module("difflib")  # for mistakes alone
    found = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""


def _named_options(args: Sequence[str]) -> Iterator[str]:
    """Yield the long options that were given, without their values."""
    for argument in takewhile(lambda one: one != "--", args):
        if argument.startswith("--"):
            yield argument.partition("=")[0]


def add_output(parser: argparse.ArgumentParser) -> None:
    """Declare how a command's result is printed."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--no-color", action="store_true", help="print plain text, as with NO_COLOR=1"
    )


def print_json(value: Mapping[str, Any]) -> None:
    """Print a result for programs."""
    sys.stdout.write(finite_json.text(value, indent=2) + "\n")


def print_remark(line: str) -> None:
    """Print a line for people to standard error, with every character visible."""
    sys.stderr.write(f"{shown(line)}\n")


def print_progress(line: str) -> None:
    """Say on standard error what is waited for, if that is a terminal: files need no such line."""
    if sys.stderr.isatty():
        print_remark(line)


def positive_seconds(text: str) -> float:
    """Return an option's number of seconds.

    Raises:
        argparse.ArgumentTypeError: it is not a number, not positive, or infinite.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, not {text!r}")
    return value


def share(text: str) -> float:
    """Return an option's share.

    Raises:
        argparse.ArgumentTypeError: it is not between 0 and 1.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, not {text!r}")
    return value


def check_folder(path: Path, subject: str = "") -> None:
    """Refuse a file in whose directory none can be made, before work is done for it.

    Args:
        path: of the file.
        subject: what the message is about, if it is not the path.

    Raises:
        InputError: there is no such directory, or it is not writable.
    """
    refused = f"{subject or path} cannot be written: "
    try:
        is_there = path.parent.is_dir()
    except OSError as error:
        raise InputError(f"{refused}{error.strerror}") from None
    if not is_there:
        raise InputError(f"{refused}there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(f"{refused}{path.parent} is not writable")


def check_text(path: Path) -> None:
    """Refuse a file that `write_text` cannot write, before work is done for it.

    Raises:
        InputError: it is a directory or not writable, or none can be made there.
    """
    try:
        exists, is_directory = path.exists(), path.is_dir()
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    if not exists:
        check_folder(path)
    elif is_directory or not os.access(path, os.W_OK):
        why = "it is a directory" if is_directory else "it is not writable"
        raise InputError(f"{path} cannot be written: {why}")


def write_text(path: Path, text: str) -> None:
    """Write a file that an option names.

    Raises:
        InputError: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def age_seconds(age: str, option: str) -> float:
    """Return the seconds of an age such as `30m`.

    Args:
        age: a number and its unit.
        option: that it was given to.

    Raises:
        InputError: it is invalid, or too long.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", age)
    seconds = float(match[1]) * SECONDS[match[2]] if match else math.inf
    if seconds > LONGEST_SECONDS:
        raise InputError(f"{option} takes an age such as 30m or 2h, not {age!r}")
    return seconds
