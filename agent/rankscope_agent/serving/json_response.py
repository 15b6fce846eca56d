"""Answers of one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rankscope_agent.serving.step_stream import finite
from rankscope_agent.web.routes import JSON_TYPE, Response


def json_response(body: Mapping[str, Any], status: int = 200) -> Response:
    """Return an object as an answer; what is not finite, which JSON does not have, is null."""
    try:
        text = json.dumps(body, indent=1, allow_nan=False)
    except ValueError:
        text = json.dumps(finite(body), indent=1, allow_nan=False)
    return Response(status, JSON_TYPE, f"{text}\n".encode())
