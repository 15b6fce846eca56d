"""Every kind of finding that may page has an alert that fires for it, as promtool finds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import get_args

import pytest

from alert_cases import CASES
from alert_series import JOB_KNOWN, NODE, amiss, condition, finding, of_gpu
from alert_timelines import Series, State, event, in_cluster, of_cluster, steady
from clusters_apart import rules_of, said_against
from rankscope_analyzers.findings.advice import ADVICE, MEMORY_EXHAUSTED
from rankscope_analyzers.findings.finding import FaultClass
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server

BY_COST = frozenset(get_args(FaultClass))
"""What step times show pages if it costs much."""

SOMETIMES = frozenset({"memory_pressure", "flapping", "app"})
"""Kinds of which some findings are worse than usual: memory that is exhausted, a link that goes up
and down under ranks or whose cable the kernel reports, a program error that the driver calls
fatal."""

PAGING = sorted(
    {kind for kind, one in ADVICE.items() if one.severity == "page"} | BY_COST | SOMETIMES
)

LIKE_THEIR_ALERT = (
    *("checkpoint_failed", "checkpoint_not_loaded", "checkpoint_store_full", "collective_timeout"),
    *("container_not_created", "crash_loop", "disk_full", "ecc_uncorrected", "flapping"),
    *("gpu_lost", "host_memory", "ib_errors", "image_not_pulled", "init_incomplete"),
    *("loss_not_finite", "node_reboot", "nvlink_degraded", "oom_kill", "pod_failed"),
    *("row_remap_failed", "socket_fallback", "thermal_slowdown"),
)
"""Kinds that the series with which their alert is tried are about."""


def used(resource: str) -> tuple[Series, ...]:
    return (steady(f'rankscope_node_resource_used_ratio{{{NODE},resource="{resource}"}}', 0.99),)


RANKS_WAIT = amiss("ranks_waiting", 1).series

OF_AGENTS: Mapping[str, tuple[Series, ...]] = {
    **{kind: CASES[ADVICE[kind].runbook].series for kind in LIKE_THEIR_ALERT},
    "memory_pressure": used("memory"),
    "pids_exhausted": used("pids"),
    "fabric_unhealthy": (steady(of_gpu("rankscope_gpu_fabric_unhealthy", 'check="bandwidth"')),),
    "host_kernel": (
        event(f'rankscope_kernel_last_event_timestamp_seconds{{{NODE},kind="kernel_panic"}}'),
    ),
    "power_brake": condition("power_brake", "thermal_slowdown").series,
    # The ranks that got a number or a size that others do not have are waited for.
    "duplicate_rank": RANKS_WAIT,
    "world_size_disagrees": RANKS_WAIT,
}
"""What agents export of a fault, by the kind of the finding about it. Other kinds have alerts on
the watch's findings themselves."""

MINUTES = 60

ADVISED = {**ADVICE, "memory_pressure": MEMORY_EXHAUSTED}
"""The advice on kinds that may page, where they do."""


def carriers(kind: str) -> list[str]:
    """Return the alerts that are about a kind: by its runbook, or by what they select."""
    selected = (alert.name for alert in ALERTS if kind in _selected(alert.expression))
    return sorted({ADVISED[kind].runbook, *selected})


def _selected(expression: str) -> set[str]:
    return {
        kind for found in re.findall(r'kind=~"([^"]+)"', expression) for kind in found.split("|")
    }


def series_of(kind: str) -> list[dict[str, str]]:
    """Return what promtool reads of a cluster with a finding of the kind."""
    states: list[State] = ["bad"] * (MINUTES + 1)
    symptom, lost = (kind, 0.5) if kind in {*BY_COST, "hang"} else ("", None)
    watched = finding(kind, symptom, lost).series
    series = {one.selector: one for one in (*watched, *JOB_KNOWN, *OF_AGENTS.get(kind, ()))}
    return [
        {"series": in_cluster(name, kind), "values": " ".join(one.values(states, 1))}
        for name, one in series.items()
    ]


def question(kind: str) -> dict[str, object]:
    """Ask promtool whether the alert of a kind has fired."""
    alerts = f'alertname=~"{"|".join(carriers(kind))}",alertstate="firing"'
    fired = f"ALERTS{{{alerts},{of_cluster(kind)}}}[1h]"
    return {
        "expr": f"count(count_over_time({fired})) > bool 0 or vector(0)",
        "eval_time": f"{MINUTES}m",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What promtool has to say against each kind, which has a cluster of its own."""
    folder = tmp_path_factory.mktemp("rules")
    groups = rules_of(name for kind in PAGING for name in carriers(kind))
    block = {
        "interval": "1m",
        "input_series": [one for kind in PAGING for one in series_of(kind)],
        "promql_expr_test": [question(kind) for kind in PAGING],
    }
    return said_against(folder, require_server("promtool"), groups, block, "2m", PAGING)


@pytest.mark.parametrize("kind", PAGING)
def test_a_kind_that_may_page_has_an_alert_that_fires_for_it(
    kind: str, said: Mapping[str, str]
) -> None:
    assert not said[kind]


def test_what_agents_export_is_listed_of_kinds_that_may_page_alone() -> None:
    assert set(OF_AGENTS) <= set(PAGING)
