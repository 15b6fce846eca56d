"""Generated dashboards: Grafana's own types accept them, the linter finds nothing."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from dashboard_lint import lint, panels_of
from dashboard_models import dashboard_models
from rankscope_agent.sources.nccl_inspector import records
from rankscope_dashboards import dashboard_files
from rankscope_dashboards.boards.debug_hardware import OPERATIONS
from rankscope_dashboards.parts.links import VIEWS
from rankscope_dashboards.parts.panels import NEUTRAL
from rankscope_dashboards.rules.rule_files import Links
from servers import require_tool

SCHEMAS = Path(__file__).parent / "fixtures" / "grafana_schema"
RUNBOOKS = Path(__file__).parent.parent / "docs" / "runbooks"
MODELS = {model["uid"]: model for model in dashboard_models()}
SCHEMA_OF_KIND = {"state-timeline": "statetimeline"}

ALLOWED = (
    # Grafana's own Prometheus data source defines these outside of the dashboard's schema.
    r"annotations\.list\.\d+: Additional properties .*'expr'.*",
    # Grafana's editor saves the text of a query there, as its type in the schema is a plain one.
    r"templating\.list\.\d+: Additional properties are not allowed \('definition' was unexpected\)",
)


@pytest.fixture(params=sorted(MODELS))
def dashboard(request) -> Any:
    return copy.deepcopy(MODELS[request.param])


@cache
def validator(name: str) -> jsonschema.Draft7Validator | None:
    path = SCHEMAS / f"{name}.json"
    if not path.exists():
        return None
    return jsonschema.Draft7Validator(json.loads(path.read_text()))


def violations(model: Any) -> Iterator[str]:
    """Yield what Grafana's types refuse in a dashboard, in its panels' options and fields."""
    yield from _against("dashboard", model, "")
    for panel in panels_of(model):
        kind = SCHEMA_OF_KIND.get(panel["type"], panel["type"])
        yield from _against(f"{kind}.Options", panel["options"], f"{panel['title']}: ")
        custom = panel["fieldConfig"]["defaults"]["custom"]
        if validator(f"{kind}.FieldConfig"):
            yield from _against(f"{kind}.FieldConfig", custom, f"{panel['title']}: ")
        elif custom:
            yield f"{panel['title']}: {kind} has no field settings"


def _against(schema: str, value: Any, where: str) -> Iterator[str]:
    known = validator(schema)
    assert known, f"no schema {schema}"
    for error in known.iter_errors(value):
        for leaf in _nearest(error):
            path = ".".join(map(str, leaf.absolute_path))
            yield f"{where}{path}: {leaf.message}"


def _nearest(error: Any) -> list[Any]:
    """Return what the alternative with the fewest faults says where there are several."""
    branches: dict[Any, list[Any]] = {}
    for one in error.context or ():
        branches.setdefault(one.relative_schema_path[0], []).append(one)
    return min(branches.values(), key=len) if branches else [error]


def unexpected(model: Any) -> list[str]:
    return [one for one in violations(model) if not any(re.fullmatch(p, one) for p in ALLOWED)]


def test_grafanas_own_types_accept_every_dashboard(dashboard):
    assert unexpected(dashboard) == []


def test_the_schemas_refuse_what_old_versions_wrote(dashboard):
    panel = panels_of(dashboard)[0]
    panel["options"]["fieldOptions"] = {}
    panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] = "null"
    found = unexpected(dashboard)
    assert any("fieldOptions" in one for one in found)
    assert any("thresholds" in one for one in found)


def test_the_linter_finds_nothing(dashboard):
    assert list(lint(dashboard, list(VIEWS))) == []


QUERIES = {
    "promql": "sum(rate(x{",
    "series": 'rankscope_last_step_seconds{cluster=~"$cluster"}',
    "topk": 'topk(5, rankscope_last_step_seconds{cluster=~"$cluster"})',
    "counter": 'sum(rankscope_steps_total{cluster=~"$cluster"})',
    "gauge": 'sum(rate(rankscope_last_step{cluster=~"$cluster"}[$__rate_interval]))',
    "cluster": "sum(rankscope_last_step_seconds)",
    "window": 'sum(rate(rankscope_steps_total{cluster=~"$cluster"}[5m]))',
    "variable": 'sum(rankscope_last_step_seconds{cluster=~"$clusters"})',
}


def _spoil(model: Any, kind: str) -> None:
    panel = next(one for one in panels_of(model) if one["type"] == "timeseries")
    if kind in QUERIES:
        panel["targets"][0]["expr"] = QUERIES[kind]
    elif kind == "unit":
        panel["fieldConfig"]["defaults"]["unit"] = "seconds"
    elif kind == "label":
        table = next(one for one in panels_of(model) if one["type"] == "table")
        table["fieldConfig"]["defaults"]["unit"] = "s"
    elif kind == "overlap":
        panel["gridPos"]["y"] = 0
    elif kind == "letters":
        stat = next(one for one in panels_of(model) if one["type"] == "stat")
        stat["fieldConfig"]["defaults"]["noValue"] = "no job with the probe in this time"
    elif kind == "news":
        panel["fieldConfig"]["defaults"]["noValue"] = "nothing was lost"
    elif kind == "escape":
        model["templating"]["list"][1]["multi"] = False
    elif kind == "link":
        model["links"][0]["url"] = "/d/gone"
    else:
        panel["description"] = ""


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("promql", "sum(rate(x{"),
        ("series", "may draw more than 20"),
        ("topk", "anew at each point"),
        ("counter", "shown as it is"),
        ("gauge", "the gauge rankscope_last_step is taken for a counter"),
        ("cluster", "not told apart by cluster"),
        ("window", "a fixed window"),
        ("variable", "$clusters is used and not defined"),
        ("unit", "unknown unit seconds"),
        ("label", "labels that are numbers are shown as s"),
        ("overlap", "overlaps"),
        ("letters", "too small to read"),
        ("link", "gone, which does not exist"),
        ("escape", "$cluster is not escaped"),
        ("news", "missing for good news"),
        ("words", "no description"),
    ],
)
def test_the_linter_finds_faults(dashboard, kind, said):
    _spoil(dashboard, kind)
    assert any(said in fault for fault in lint(dashboard, list(VIEWS)))


def test_config_maps_hold_the_dashboards_and_fit_into_etcd():
    files = dashboard_files.files(Links())
    maps = [yaml.safe_load(text) for name, text in files.items() if name.startswith("configmaps/")]
    assert len(maps) == len(dashboard_files.DASHBOARDS)
    for one in maps:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((name, content),) = one["data"].items()
        assert content == files[f"dashboards/{name}"]
        # Kubernetes refuses a ConfigMap of more than 1 MiB, and annotations of 256 KiB, in one of
        # which kubectl apply keeps all of it as JSON.
        assert len(json.dumps(one)) < 240 * 1024


def test_one_command_applies_all_config_maps():
    kubectl = require_tool("kubectl")
    folder = RUNBOOKS.parent.parent / "dashboards" / "generated" / "configmaps"
    # As a folder of files (-f) the list for kustomize would be taken for an object, and refused.
    built = subprocess.run(
        [kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=True
    )
    names = {one["metadata"]["name"] for one in yaml.safe_load_all(built.stdout)}
    assert names == set(VIEWS)
    guide = (RUNBOOKS.parent / "dashboards.md").read_text()
    assert "kubectl apply -n monitoring -k dashboards/generated/configmaps/" in guide


def test_the_provisioning_file_names_a_folder_of_files():
    (provider,) = yaml.safe_load(dashboard_files.PROVISIONING)["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"] == dashboard_files.FOLDER


def test_every_runbook_that_a_panel_links_to_exists(dashboard):
    names = re.findall(r"docs\.example\.com/runbooks/(\w+)\.md", json.dumps(dashboard))
    assert names
    assert [name for name in names if not (RUNBOOKS / f"{name}.md").exists()] == []


def test_a_missing_label_is_not_taken_for_an_empty_table(dashboard):
    for panel in panels_of(dashboard):
        if panel["type"] == "table":
            first = panel["fieldConfig"]["overrides"][0]
            assert first["matcher"] == {"id": "byType", "options": "string"}
            assert first["properties"] == [{"id": "noValue", "value": "-"}]


def test_links_to_a_job_know_its_cluster(dashboard):
    for panel in panels_of(dashboard):
        overrides = panel["fieldConfig"]["overrides"]
        links = [one for one in overrides if "clusters}" in json.dumps(one)]
        names = [
            one["options"]["include"]["names"]
            for one in panel["transformations"]
            if one["id"] == "filterFieldsByName"
        ]
        assert bool(links) == any("clusters" in one for one in names), panel["title"]
        if links:
            (hidden,) = [one for one in overrides if one["matcher"]["options"] == "clusters"]
            assert hidden["properties"][0]["value"]["viz"] is True
            assert '"clusters", "All"' in panel["targets"][0]["expr"]


def looks_of(panel: Any, name: str) -> str:
    found = [
        json.dumps(one["properties"])
        for one in panel["fieldConfig"]["overrides"]
        if one["matcher"]["id"] == "byRegexp"
        and re.search(one["matcher"]["options"].strip("/"), name)
    ]
    (looks,) = found
    return looks


def test_lines_of_jobs_and_pods_look_different_without_regard_to_colour_vision():
    panels = {panel["title"]: panel for panel in panels_of(MODELS["rankscope-checkpoints"])}
    pods = {looks_of(panels["Loss"], f"train-{rank} megatron") for rank in range(18)}
    assert len(pods) == 10  # by the last digit
    panels = {panel["title"]: panel for panel in panels_of(MODELS["rankscope-on-call"])}
    lost = panels["Share of step time lost, by job"]
    unseen = panels["What could not be seen of jobs"]
    names = ("team/llama", "team/BERT", "4711", "local/0e2f")
    assert len({looks_of(lost, f"{name} gpu_compute east") for name in names}) == len(names)
    for name in names:
        assert looks_of(lost, f"{name} gpu_compute ") == looks_of(unseen, f"{name} east")


def test_every_line_has_a_colour_that_can_be_told_apart(dashboard):
    for panel in panels_of(dashboard):
        if panel["type"] == "timeseries":
            assert "fixedColor" in json.dumps(panel["fieldConfig"]["overrides"]), panel["title"]


def test_operations_are_those_that_the_agent_knows():
    assert {*records.OPERATIONS, "other"} == set(OPERATIONS)


def test_panel_titles_are_unique(dashboard):
    titles = [panel["title"] for panel in panels_of(dashboard)]
    assert len(set(titles)) == len(titles)


def test_what_is_missing_does_not_look_well(dashboard):
    for panel in panels_of(dashboard):
        if panel["type"] in {"stat", "bargauge"}:
            defaults = panel["fieldConfig"]["defaults"]
            (missing,) = [one for one in defaults["mappings"] if one["type"] == "special"]
            assert missing["options"]["match"] == "null"
            result = missing["options"]["result"]
            assert (result["text"], result["color"]) == (defaults["noValue"], NEUTRAL)
