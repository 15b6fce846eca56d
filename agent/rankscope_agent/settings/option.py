"""How a setting is declared: once, as a field of `Config`, with its command line option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

Value = TypeVar("Value")

_KEY = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """A setting: its flag, its variables in falling order, how its text is read, what it is.

    `default` is text, read like a given value; None says that the default is found at run time.
    A `switch` may be given without a value, which then is 1.
    """

    flag: str
    variables: tuple[str, ...]
    parse: Callable[[str], Any]
    default: str | None
    metavar: str
    help: str
    switch: bool


def variable_of(flag: str) -> str:
    """Name the environment variable of a flag: RANKSCOPE_PATH_PROCFS of --path.procfs."""
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
    """Declare a field of a dataclass as a setting; what `parse` returns is the field's type.

    Args:
        flag: on the command line.
        parse: reads its text, and raises ValueError with what was expected.
        default: text used where nothing is given; None if it is found at run time.
        metavar: what --help calls its value.
        purpose: what --help says of it.
        variables: its environment variables, the first one wins; by default the flag's own.
        switch: it may be given without a value.
    """
    named = variables or (variable_of(flag),)
    declared = Option(flag, named, parse, default, metavar, purpose, switch)
    return cast("Value", field(metadata={_KEY: declared}))


def options_of(settings: type[Any]) -> dict[str, Option]:
    """Return the options that a dataclass declares, by field and in their order."""
    return {each.name: each.metadata[_KEY] for each in fields(settings) if _KEY in each.metadata}
