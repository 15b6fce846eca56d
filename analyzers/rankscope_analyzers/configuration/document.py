"""Reads rankscope.yaml: values, and their locations in the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rankscope_analyzers.text.sanitize import visible

MOST_BYTES = 1 << 20
"""Bytes: a thousand projects and prices are a tenth of that."""

MOST_DEPTH = 20

_LOADER = yaml.SafeLoader
_SHOWN = 40  # characters of an invalid value that are shown


class ConfigurationError(Exception):
    """The file cannot be used; each line of the message names one location in it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A location in the file, counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        """Return it in the form that editors accept."""
        return f"{self.line}:{self.column}"


Way = tuple[str | int, ...]
"""Keys and indices that lead to a value."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file that was read.

    Args:
        value: of mappings, sequences and scalars.
        places: of values, by the path to them; keys have their value's path with `KEY` appended.
    """

    value: Any
    places: dict[Way, Place]


KEY = "\0key"


def read(path: Path) -> Document:
    """Read a file.

    Raises:
        ConfigurationError: it cannot be read, or is not YAML.
    """
    try:
        with path.open("rb") as file:
            found = file.read(MOST_BYTES + 1)
        if len(found) > MOST_BYTES:
            raise ConfigurationError(f"{path}: more than {MOST_BYTES} bytes")
        return parse(found.decode("utf-8"), str(path))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 text, at byte {error.start}") from None


def parse(text: str, name: str) -> Document:
    """Return the content of a text.

    Raises:
        ConfigurationError: it is not YAML, repeats a key, or uses an alias or a tag.
    """
    try:
        for token in yaml.scan(text, Loader=_LOADER):
            if isinstance(token, yaml.AliasToken | yaml.TagToken):
                where = _place(token.start_mark)
                raise ConfigurationError(f"{name}:{where}: aliases and tags are not supported")
        node = yaml.compose(text, Loader=_LOADER)
        places: dict[Way, Place] = {}
        value = None if node is None else _value(node, (), places, name)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"{_place(mark)}: " if mark else " "
        problem = getattr(error, "problem", None) or "it is not YAML"
        raise ConfigurationError(f"{name}:{at}{problem}") from None
    return Document(value, places)


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _value(node: yaml.Node, path: Way, places: dict[Way, Place], name: str) -> Any:
    places[path] = _place(node.start_mark)
    if len(path) > MOST_DEPTH:
        raise ConfigurationError(f"{name}:{places[path]}: more than {MOST_DEPTH} levels")
    if isinstance(node, yaml.MappingNode):
        return dict(_items(node, path, places, name))
    if isinstance(node, yaml.SequenceNode):
        return [_value(one, (*path, at), places, name) for at, one in enumerate(node.value)]
    try:
        return _LOADER("").construct_object(node)
    except ValueError:  # a date that does not exist, or an integer of thousands of digits
        problem = f"{visible(node.value, _SHOWN)} is not a valid value"
        raise ConfigurationError(f"{name}:{places[path]}: {problem}") from None


def _items(
    node: yaml.MappingNode, path: Way, places: dict[Way, Place], name: str
) -> Iterator[tuple[str, Any]]:
    known: set[str] = set()
    for key, value in node.value:
        text = key.value if isinstance(key, yaml.ScalarNode) else ""
        if text in known or not text:
            problem = f"the key {text} occurs twice" if text else "a key that is not text"
            raise ConfigurationError(f"{name}:{_place(key.start_mark)}: {problem}")
        known.add(text)
        places[(*path, text, KEY)] = _place(key.start_mark)
        yield text, _value(value, (*path, text), places, name)
