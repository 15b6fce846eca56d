"""Answers of one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rankscope_agent.serving.step_stream import finite
from rankscope_agent.web.routes import JSON_TYPE, Response


def json_response(body: Mapping[str, Any], *, in_one_line: bool = False) -> Response:
    """Return an object as an answer; values that are not finite, which JSON lacks, become null.

    Args:
        body: the object.
        in_one_line: for answers that only programs read: indenting takes twenty times as long.
    """
    indent = None if in_one_line else 1
    try:
        text = json.dumps(body, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(finite(body), indent=indent, allow_nan=False)
    return Response(200, JSON_TYPE, f"{text}\n".encode())
