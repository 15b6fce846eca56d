"""Declares a setting once, as a field of `Config`, with its command line option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

Value = TypeVar("Value")

_KEY = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """A setting: its flag, its variables by precedence, its parser and its description.

    `default` is text, parsed like a given value; None means that the default is determined at run
    time. A `switch` may be given without a value, which then is 1.
    """

    flag: str
    variables: tuple[str, ...]
    parse: Callable[[str], Any]
    default: str | None
    metavar: str
    help: str
    switch: bool


def variable_of(flag: str) -> str:
    """Return the environment variable of a flag: RANKSCOPE_PATH_PROCFS for --path.procfs."""
    name = flag.lstrip("-").replace(".", "_").replace("-", "_").upper()
    return f"RANKSCOPE_{name}"


def option(
    flag: str,
    parse: Callable[[str], Value],
    default: str | None,
    metavar: str,
    purpose: str,
    *,
    variables: tuple[str, ...] = (),
    switch: bool = False,
) -> Value:
    """Declare a dataclass field as a setting; its type is what `parse` returns.

    Args:
        flag: its name on the command line.
        parse: parses its text; raises ValueError with what was expected.
        default: text used if none is given; None if determined at run time.
        metavar: the placeholder for its value in --help.
        purpose: its description in --help.
        variables: its environment variables by precedence; by default the one of the flag.
        switch: whether it may be given without a value.
    """
    named = variables or (variable_of(flag),)
    declared = Option(flag, named, parse, default, metavar, purpose, switch)
    return cast("Value", field(metadata={_KEY: declared}))


def options_of(settings: type[Any]) -> dict[str, Option]:
    """Return the options that a dataclass declares, by field, in order of declaration."""
    return {each.name: each.metadata[_KEY] for each in fields(settings) if _KEY in each.metadata}
