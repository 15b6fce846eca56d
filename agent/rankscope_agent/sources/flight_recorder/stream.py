"""Writes windows of collectives as one JSON object, one window at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from rankscope_agent.sources.flight_recorder.windows import Window


def windows_json(windows: Iterable[Window], node: str) -> Iterator[bytes]:
    """Yield the pieces of `{"node", "windows"}`, columns of a window as lists of equal length."""
    yield f'{{"node":{json.dumps(node)},"windows":['.encode()
    separator = ""
    for window in windows:
        yield f"{separator}{json.dumps(_as_object(window), separators=(',', ':'))}".encode()
        separator = ","
    yield b"]}\n"


def _as_object(window: Window) -> dict[str, Any]:
    return {
        "job_id": window.job_id,
        "rank": window.rank,
        "backend": window.backend,
        "begin_ns": window.begin_ns,
        "end_ns": window.end_ns,
        "groups": window.groups,
        "operations": window.operations,
        "group": list(window.group),
        "operation": list(window.operation),
        "seq": list(window.seq),
        "time_ns": list(window.time_ns),
        "duration_us": list(window.duration_us),
    }
