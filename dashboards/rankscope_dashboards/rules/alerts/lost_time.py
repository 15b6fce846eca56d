"""Alerts about the share of the cluster's GPU time that faults take."""

from __future__ import annotations

from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts.alert import Alert
from rankscope_dashboards.rules.alerts.limits import limit, percent
from rankscope_dashboards.rules.recording_rules import burn

OLDER_HALVES = {"1h": "30m", "6h": "3h", "1d": "12h", "3d": "36h"}
"""Windows of hours or days need data that old: a ratio of minutes is not one of days."""


def _burns(long: str, short: str, factor: float) -> str:
    most = f"{factor} * {limit('lost_gpu_time')}"
    half = OLDER_HALVES[long]
    known = f"present_over_time({burn(short)}[{half}] offset {half})"
    return (
        f"({burn(long)} > {most} and on (cluster) {burn(short)} > {most} and on (cluster) {known})"
    )


def _burns_fast(long: str, short: str, factor: float) -> str:
    """Return a burn of which more than a few GPUs are part, within both windows."""
    many = " and on (cluster) ".join(
        f"{_lost(one)} > {limit('lost_gpus')}" for one in (long, short)
    )
    return f"({_burns(long, short, factor)} and on (cluster) {many})"


def _lost(window: str) -> str:
    """Return how many GPUs' time was lost on average within a window."""
    lost = records.CLUSTER_LOST  # by itself it is one of five minutes
    return lost if window == "5m" else f"avg_over_time({lost}[{window}])"


BURNS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeGoodputBurnFast",
        expression=f"{_burns_fast('1h', '5m', 14.4)}\nor {_burns_fast('6h', '30m', 6)}",
        hold="2m",
        keep="10m",
        why="Pairs of windows: the long one shows that it matters, the short one that it is"
        " still going on. A month's budget would be gone in two to five days. The data"
        " must reach into the older half of the long window. What one small job loses is no"
        " reason to wake anybody: it has alerts of its own.",
        severity="page",
        scope="cluster",
        summary="{{ $value | humanizePercentage }} of GPU time is lost",
        description="Jobs lost {{ $value | humanizePercentage }} of their GPU time to faults"
        f" within the last hour (or six), that of more than {limit('lost_gpus')} GPUs: many jobs,"
        " or a large one.",
        since="6h",
    ),
    Alert(
        name="RankscopeGoodputBurnSlow",
        expression=f"{_burns('1d', '2h', 3)}\nor {_burns('3d', '6h', 1)}",
        hold="1h",
        keep="10m",
        why="The month's budget would be gone before the month ends; another hour does not"
        " matter. The data must reach into the older half of the long window.",
        severity="ticket",
        scope="cluster",
        summary="{{ $value | humanizePercentage }} of GPU time has been lost for a day or more",
        description="Jobs lost {{ $value | humanizePercentage }} of their GPU time to faults"
        f" over a day (or three), more than the planned {percent('lost_gpu_time')}.",
        dashboard="rankscope-executive",
        since="7d",
    ),
)
