"""Writes plain values as YAML: deterministic, and readable in a diff.

Only what rule files and configurations need: mappings, sequences, texts, numbers and truth values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

Value = str | int | float | bool | Sequence["Value"] | Mapping[str, "Value"]


def dump(value: Value) -> str:
    """Return a YAML document of a mapping or a sequence."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Value) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(f"{key}:", item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _item(item)
    else:
        yield _scalar(value)


def _entry(key: str, value: Value) -> Iterator[str]:
    """Yield `key: value`, with nested values on separate lines."""
    if isinstance(value, str) and "\n" in value:
        yield f"{key} |-"
        yield from (f"  {line}" for line in value.split("\n"))
    elif isinstance(value, str | int | float) or not value:
        yield f"{key} {_scalar(value)}"
    else:
        yield key
        yield from (f"  {line}" for line in _lines(value))


def _item(value: Value) -> Iterator[str]:
    """Yield `- value`, further lines indented below it."""
    first, *others = _lines(value) if value or isinstance(value, int | float | str) else ["[]"]
    yield f"- {first}"
    yield from (f"  {line}" for line in others)


def _scalar(value: Value) -> str:
    """Return a value in JSON's notation, which is YAML's double-quoted and flow style."""
    return json.dumps(value, ensure_ascii=False)
