"""Alerts by their names, and series for them that go through states of their own."""

from dataclasses import replace

from alert_timelines import Series
from rankscope_dashboards.rules.alerts import ALERTS

BY_NAME = {alert.name: alert for alert in ALERTS}


def fixed(series: Series, states: list[str]) -> Series:
    """Return a series that goes through states of its own."""
    return replace(series, values=lambda _states, step: series.values(states, step))
