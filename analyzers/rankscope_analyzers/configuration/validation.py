"""What is wrong with a configuration by its schema, and where. Pure.

For the keywords that `schema` uses; jsonschema would bring five packages, one of them compiled, and
has no line numbers.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rankscope_analyzers.configuration.document import KEY, Document, Place, Way
from rankscope_analyzers.configuration.schema import Schema

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
}
LONGEST_VALUE = 60
"""Characters of a value that a problem shows."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Args:
        place: its location in the file.
        name: the keys that lead to it.
        what: is wrong with it.
    """

    place: Place
    name: str
    what: str


def problems(document: Document, schema: Schema) -> tuple[Problem, ...]:
    """Return all that is wrong, in the order of the file."""
    found = _of(document, document.value, (), schema)
    return tuple(sorted(found, key=lambda one: (one.place.line, one.place.column)))


def _of(document: Document, value: Any, path: Way, schema: Schema) -> Iterator[Problem]:
    if not isinstance(value, TYPES[schema["type"]]) or isinstance(value, bool):
        what = f"expected {_article(schema['type'])}, got {_shown(value)}"
        yield _problem(document, path, what)
    elif isinstance(value, dict):
        yield from _of_mapping(document, value, path, schema)
    elif isinstance(value, list):
        if len(value) > schema["maxItems"]:
            what = f"{len(value)} entries, at most {schema['maxItems']} are allowed"
            yield _problem(document, path, what)
        for at, inner in enumerate(value):
            yield from _of(document, inner, (*path, at), schema["items"])
    else:
        yield from (_problem(document, path, what) for what in _scalar(value, schema))


def _of_mapping(
    document: Document, value: dict[str, Any], path: Way, schema: Schema
) -> Iterator[Problem]:
    for key in schema["required"]:
        if key not in value:
            yield _problem(document, path, f"{key} is missing")
    if len(value) < schema.get("minProperties", 0):
        yield _problem(document, path, f"expected one of {', '.join(schema['properties'])}")
    for key, inner in value.items():
        if key in schema["properties"]:
            yield from _of(document, inner, (*path, key), schema["properties"][key])
        else:
            what = _unknown(key, list(schema["properties"]))
            yield Problem(document.places[(*path, key, KEY)], _named(path), what)


def _problem(document: Document, path: Way, what: str) -> Problem:
    return Problem(document.places.get(path, Place(1, 1)), _named(path), what)


def _named(path: Way) -> str:
    return ".".join(map(str, path))


def _scalar(value: Any, schema: Schema) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"expected one of {schema['enum']}, got {_shown(value)}"
    if isinstance(value, str):
        least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        if not least <= len(value) <= most:
            yield f"expected {least} to {most} characters, got {len(value)}"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{_shown(value)} does not match {schema['pattern']}"
        elif schema.get("format") == "ip-network":
            yield from _ip_network(value)
        return
    least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if not least <= value <= most:
        yield f"expected {least:g} to {most:g}, got {_shown(value)}"


def _ip_network(value: str) -> Iterator[str]:
    try:
        ipaddress.ip_network(value)
    except ValueError as error:
        yield f"{_shown(value)} is not a range of addresses: {error}"


def _unknown(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, 1)
    meant = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"
    return f"unknown key {key[:LONGEST_VALUE]!a}{meant}"


def _article(kind: str) -> str:
    names = {"object": "keys and values", "array": "a list", "integer": "a whole number"}
    return names.get(kind, f"a {kind}")


def _shown(value: Any) -> str:
    try:
        return json.dumps(value)[:LONGEST_VALUE]
    except TypeError:
        return repr(value)[:LONGEST_VALUE]  # dates, which YAML makes of texts that look like one
