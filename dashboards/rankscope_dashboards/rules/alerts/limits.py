"""Thresholds in expressions and texts of alerts: placeholders until rules are generated.

The alerts are tables, but a cluster's configuration is known later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from rankscope_analyzers.configuration.thresholds import THRESHOLDS
from rankscope_dashboards.rules.alerts.alert import Alert

_MARK = re.compile(r"@\{(\w+)(%?)\}")


def limit(name: str) -> str:
    """Return the placeholder of a threshold for PromQL and texts, such as 0.05.

    Raises:
        KeyError: there is no such threshold.
    """
    THRESHOLDS[name]
    return f"@{{{name}}}"


def percent(name: str) -> str:
    """Return the placeholder of a threshold for texts in percent, such as 5 %.

    Raises:
        KeyError: there is no such threshold.
    """
    THRESHOLDS[name]
    return f"@{{{name}%}}"


def with_limits(alert: Alert, thresholds: Mapping[str, float]) -> Alert:
    """Return an alert with numbers instead of placeholders."""

    def number(mark: re.Match[str]) -> str:
        value = thresholds[mark[1]]
        return f"{100 * value:g} %" if mark[2] else f"{value:g}"

    return replace(
        alert,
        expression=_MARK.sub(number, alert.expression),
        summary=_MARK.sub(number, alert.summary),
        description=_MARK.sub(number, alert.description),
    )
