"""Parses untrusted JSON: every problem raises one kind of error."""

from __future__ import annotations

import json
from typing import Any


def read(text: str | bytes) -> Any:
    """Return what a JSON document holds.

    Raises:
        ValueError: it is none, or nests so deeply or holds so much that it cannot be read.
    """
    try:
        return json.loads(text)
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"JSON that cannot be read ({error!r})") from None
