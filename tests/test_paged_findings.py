"""Every kind of finding that may page has an alert that fires for it, as promtool finds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

from alert_cases import CASES
from alert_series import JOB_KNOWN, NODE, amiss, condition, finding, of_gpu
from alert_timelines import Series, State, event, steady
from promtool_tests import LINKS, needed, tried
from rankscope_analyzers.findings.advice import ADVICE, MEMORY_EXHAUSTED
from rankscope_analyzers.findings.finding import FaultClass
from rankscope_dashboards.rules.alerts import ALERTS
from rankscope_dashboards.rules.rule_files import rule
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


def block(kind: str) -> dict[str, object]:
    """Return a test of promtool: while there is a finding of the kind, its alert has fired."""
    states: list[State] = ["bad"] * (MINUTES + 1)
    symptom, lost = (kind, 0.5) if kind in {*BY_COST, "hang"} else ("", None)
    watched = finding(kind, symptom, lost).series
    series = {one.selector: one for one in (*watched, *JOB_KNOWN, *OF_AGENTS.get(kind, ()))}
    names = "|".join(carriers(kind))
    fired = f'ALERTS{{alertname=~"{names}",alertstate="firing"}}[1h]'
    return {
        "name": kind,
        "interval": "1m",
        "input_series": [
            {"series": name, "values": " ".join(one.values(states, 1))}
            for name, one in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f"count(count_over_time({fired})) > bool 0 or vector(0)",
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        ],
    }


def test_every_kind_that_may_page_has_an_alert_that_fires_for_it(tmp_path: Path) -> None:
    names = {name for kind in PAGING for name in carriers(kind)}
    alerts = [alert for alert in ALERTS if alert.name in names]
    together = replace(alerts[0], expression="\n".join(one.expression for one in alerts))
    written = [
        *needed(together),
        {"name": "alerts", "rules": [rule(one, LINKS) for one in alerts]},
    ]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": written}))
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "2m",
        "group_eval_order": [str(group["name"]) for group in written],
        "tests": [block(kind) for kind in PAGING],
    }
    (tmp_path / "test.yaml").write_text(json.dumps(test))
    done = tried(tmp_path, require_server("promtool"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_agents_export_is_listed_of_kinds_that_may_page_alone() -> None:
    assert set(OF_AGENTS) <= set(PAGING)
