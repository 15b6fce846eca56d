"""Every query of every dashboard, asked of a real Prometheus that scraped what is exported."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard_lint import panels_of
from dashboard_models import dashboard_models
from rankscope_agent.contract.metrics import agent, reported
from rankscope_agent.contract.metrics.goodput import (
    JOB_SCALING,
    JOB_THROUGHPUT,
    PROJECT_DETECTIONS,
    PROJECT_INTERRUPTIONS,
    PROJECT_START_GPU_SECONDS,
    RECOVERIES,
)
from rankscope_dashboards.expressions.failures import FAILURES, GPU_HOURS
from rankscope_dashboards.rules.recording_rules import (
    CLASS_GOODPUT,
    CLASS_LATE,
    GOODPUT_OBJECTIVE,
    SUCCESS_OBJECTIVE,
)
from scraped_stack import Stack, ask, filled, scraped_stack
from servers import require_server
from stack_sources import JOB, OTHERS

PATIENCE_SECONDS = 300.0
"""Ten times what it takes here, for machines that do much else; what comes sooner ends the wait."""
MOST_SERIES = 20
LABEL_VALUES = re.compile(r"label_values\((.*), *(\w+)\)")
UNMEASURABLE = () if Path("/proc/pressure/cpu").exists() else ("Host pressure",)
"""Panels without data here because this machine's kernel does not measure what they show."""

OF_ADAPTERS = ("Blocks that error correction met", "Adapters by health and firmware")
"""Panels of what only a real adapter tells, by netlink: a simulated node has none."""

IN_PODS = ("Frames lost by interfaces inside pods", "Interfaces inside pods")
"""Panels of pods' own network namespaces: the ranks here are in no pods."""

OF_NFS = ("Round trip of an NFS request", "NFS requests without an answer")
"""Panels of NFS mounts, which this machine has not; test_checkpoint_dashboard.py asks them."""

OF_EVENTS = (
    PROJECT_INTERRUPTIONS,
    PROJECT_DETECTIONS,
    PROJECT_START_GPU_SECONDS,
    RECOVERIES,
)
"""Series of jobs that start, fail or recover while they are watched, which none does here."""

NEVER_HERE = (
    *(metric.name for metric in (*OF_EVENTS, JOB_THROUGHPUT, JOB_SCALING, agent.INVALID_SAMPLES)),
    *(SUCCESS_OBJECTIVE, CLASS_LATE, GOODPUT_OBJECTIVE, CLASS_GOODPUT, "offset 1d"),
    *(FAILURES, GPU_HOURS),
)
"""Beside them series of what goes wrong with a collector's samples, of what minutes of one
number of GPUs give, of objectives and of hours, which recording rules add, and of the week
before."""

OF_THE_PAST = ("Recoveries",)
"""Marks of what ends some time: in half a minute little recovers here, or nothing."""

MODELS = dashboard_models()


@pytest.fixture(scope="module")
def stack(tmp_path_factory) -> Iterator[Stack]:
    program = require_server("prometheus")
    with scraped_stack(program, tmp_path_factory.mktemp("stack")) as running:
        yield running


def until_true(look: Any) -> Any:
    """Return what a look gives once it gives something."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def variables(address: str, model: Any, chosen: str = "") -> dict[str, str]:
    """Return values of a dashboard's variables: all of them, or the one job."""
    values: dict[str, str] = {}
    for variable in model["templating"]["list"]:
        if variable["type"] != "query":
            continue
        name = variable["name"]
        if name == "cluster" and chosen:
            values[name] = chosen
        elif variable["includeAll"]:
            values[name] = variable["allValue"]
        else:
            offered = until_true(lambda one=variable: label_values(address, one, values))
            assert JOB in offered, f"${name} offers {offered}"
            values[name] = JOB
    return values


def label_values(address: str, variable: Any, values: dict[str, str]) -> list[str]:
    selector, label = LABEL_VALUES.fullmatch(variable["query"]["query"]).groups()
    found = ask(address, f"label/{label}/values", **{"match[]": filled(selector, values)})
    return [value for value in found if value]


def series_of(address: str, target: Any, values: dict[str, str]) -> list[Any]:
    query, now = filled(target["expr"], values), time.time()
    if target["instant"]:
        return ask(address, "query", query=query)["result"]
    span = {"start": f"{now - 15}", "end": f"{now}", "step": "1"}
    return ask(address, "query_range", query=query, **span)["result"]


def unanswered(address: str, model: Any, values: dict[str, str]) -> list[str]:
    """Return the panels' queries that find nothing, after waiting for those that need time."""
    open_ones = [
        (panel, target)
        for panel in panels_of(model)
        for target in panel["targets"]
        if panel["title"] not in (*UNMEASURABLE, *OF_ADAPTERS, *IN_PODS, *OF_NFS)
        and not any(name in target["expr"] for name in NEVER_HERE)
    ]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while open_ones and time.monotonic() < deadline:
        open_ones = [
            (panel, target) for panel, target in open_ones if not series_of(address, target, values)
        ]
        time.sleep(1.0 if open_ones else 0)
    return [f"{panel['title']}: {filled(target['expr'], values)}" for panel, target in open_ones]


@pytest.mark.parametrize("model", MODELS, ids=[model["uid"] for model in MODELS])
def test_every_query_finds_data(stack, model):
    for address, cluster in ((stack.plain, ""), (stack.clusters, ""), (stack.clusters, "east")):
        assert unanswered(address, model, variables(address, model, cluster)) == []


@pytest.mark.parametrize("model", MODELS, ids=[model["uid"] for model in MODELS])
def test_no_panel_draws_more_than_twenty_series(stack, model):
    values = variables(stack.clusters, model)
    for panel in panels_of(model):
        drawn = [len(series_of(stack.clusters, target, values)) for target in panel["targets"]]
        # The queries of a table are columns of the same rows.
        together = max(drawn) if panel["type"] == "table" else sum(drawn)
        assert together <= MOST_SERIES or panel["type"] == "heatmap", panel["title"]


@pytest.mark.parametrize("model", MODELS, ids=[model["uid"] for model in MODELS])
def test_every_variable_offers_values_and_every_mark_has_times(stack, model):
    values = variables(stack.clusters, model)
    for variable in model["templating"]["list"]:
        if variable["type"] == "query":
            offered = until_true(lambda one=variable: label_values(stack.clusters, one, values))
            assert offered, variable["name"]
    for mark in model["annotations"]["list"]:
        query = filled(mark["expr"], values)
        if mark["name"] in OF_THE_PAST:
            found = ask(stack.clusters, "query", query=query)["result"]
        else:
            found = until_true(lambda one=query: ask(stack.clusters, "query", query=one)["result"])
            assert found, mark["name"]
        for one in found:
            milliseconds = float(one["value"][1])
            assert abs(milliseconds / 1000 - time.time()) < 3600, mark["name"]


def test_what_befell_ranks_of_the_made_up_cluster_befell_them_just_now(stack):
    name = reported.TRAINING_EVENT.name
    found = until_true(lambda: ask(stack.plain, "query", query=name)["result"])
    assert "loss_not_finite" in {one["metric"]["event"] for one in found}
    for one in found:
        assert abs(float(one["value"][1]) - time.time()) < 3600, one["metric"]


@pytest.mark.parametrize("model", MODELS, ids=[model["uid"] for model in MODELS])
def test_one_cluster_shows_nothing_of_another(stack, model):
    values = variables(stack.clusters, model, "east")
    for panel in panels_of(model):
        for target in panel["targets"]:
            found = series_of(stack.clusters, target, values)
            assert {one["metric"].get("cluster", "east") for one in found} <= {"east"}


@pytest.mark.parametrize("model", MODELS, ids=[model["uid"] for model in MODELS])
def test_without_any_series_queries_are_empty_and_never_fail(stack, model):
    values = dict.fromkeys(("cluster", "job_id", "node", "rank"), "nowhere")
    for panel in panels_of(model):
        for target in panel["targets"]:
            assert series_of(stack.clusters, target, values) == [], panel["title"]


def test_the_culprit_stands_in_the_table_of_incidents(stack):
    (model,) = [one for one in MODELS if one["uid"] == "rankscope-on-call"]
    (panel,) = [one for one in panels_of(model) if one["title"] == "Incidents and culprits"]
    values = variables(stack.plain, model)
    # The Xid of the kernel log makes an incident of its own, whose symptom is another.
    slow = until_true(
        lambda: [
            one
            for one in series_of(stack.plain, panel["targets"][0], values)
            if one["metric"].get("symptom") == "gpu_compute"
        ]
    )
    (row,) = slow
    assert row["metric"]["job_id"] == JOB
    assert row["metric"]["rank"] == "2"
    assert row["metric"]["gpu"] == "2"
    assert row["metric"]["runbook"].startswith("Rankscope")
    assert 0.2 < float(row["value"][1]) < 0.35


def test_names_that_are_not_ours_are_those_that_were_allowed():
    foreign = re.compile(r"\b(?:kube|kubelet|juicefs|container|node|DCGM)_\w+(?=\{)")
    names = {name for model in MODELS for name in foreign.findall(json.dumps(model))}
    assert names == OTHERS
