"""The dashboards as Grafana reads them, encoded once for all test files that look at them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from rankscope_dashboards import dashboard_files

RUNBOOKS = "https://docs.example.com/runbooks"


@cache
def _texts() -> tuple[str, ...]:
    return tuple(
        dashboard_files.text(make(RUNBOOKS).auto_panel_ids()) for make in dashboard_files.DASHBOARDS
    )


def dashboard_models() -> list[Any]:
    """Return each dashboard's JSON, the caller's own."""
    return [json.loads(text) for text in _texts()]
