"""The generated files: the same as what the tables make, and what Prometheus and operators take."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboard_lint import panels_of
from dashboard_models import dashboard_models
from rankscope_dashboards import generate
from rankscope_dashboards.rules.rule_files import Links
from rankscope_dashboards.yaml_text import dump
from servers import require_server

ROOT = Path(__file__).parent.parent
GENERATED = ROOT / "dashboards/generated"
CRD = ROOT.parent / "shared/data/crd_prometheusrules.yaml"
SHARED_CRD = CRD if CRD.is_file() else ROOT.parent.parent / "shared/data/crd_prometheusrules.yaml"

MOST_BYTES_OF_A_QUERY = 16_384
"""The default of VictoriaMetrics' -search.maxQueryLen."""


def test_the_committed_files_are_what_the_tables_make():
    made = generate.everything(Links())
    assert generate.differences(GENERATED, made) == [], "rankscope-dashboards generate makes them"


def test_the_same_tables_make_the_same_bytes():
    assert generate.everything(Links()) == generate.everything(Links())


def test_check_tells_what_differs(tmp_path, capsys):
    assert generate.main(["generate", "--out", str(tmp_path)]) == 0
    assert generate.main(["generate", "--out", str(tmp_path), "--check"]) == 0
    (tmp_path / "rules/alerts.yaml").write_text("groups: []\n")
    (tmp_path / "rules/recording_rules.yaml").unlink()
    (tmp_path / "old.yaml").write_text("x")
    capsys.readouterr()
    assert generate.main(["generate", "--out", str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "old.yaml: not made by this version",
        "rules/alerts.yaml: differs",
        "rules/recording_rules.yaml: missing",
    ]


def test_a_folder_that_cannot_be_written_is_said(tmp_path, capsys):
    (tmp_path / "rules").write_text("a file in the way")
    assert generate.main(["generate", "--out", str(tmp_path)]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_links_lead_where_they_are_told_to(tmp_path):
    addresses = ["--runbook-url", "https://books/r/", "--grafana-url", "https://graphs/"]
    assert generate.main(["generate", "--out", str(tmp_path), *addresses]) == 0
    text = (tmp_path / "rules/alerts.yaml").read_text()
    assert '"https://books/r/RankscopeGpuLost.md"' in text
    assert "https://graphs/d/rankscope-on-call?" in text
    assert "example.com" not in text


@pytest.mark.parametrize("name", ["alerts", "recording_rules"])
def test_promtool_takes_the_rules(name):
    promtool = require_server("promtool")
    command = [promtool, "check", "rules", "--lint=all", "--lint-fatal"]
    done = subprocess.run(
        [*command, str(GENERATED / f"rules/{name}.yaml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_query_is_longer_than_victoriametrics_takes():
    groups = [
        group
        for name in ("alerts", "recording_rules")
        for group in yaml.safe_load((GENERATED / f"rules/{name}.yaml").read_text())["groups"]
    ]
    asked = [rule["expr"] for group in groups for rule in group["rules"]]
    for model in dashboard_models():
        asked += [target["expr"] for panel in panels_of(model) for target in panel["targets"]]
        asked += [mark["expr"] for mark in model["annotations"]["list"]]
    assert len(asked) > 400
    assert max(len(query.encode()) for query in asked) <= MOST_BYTES_OF_A_QUERY


def test_custom_resources_hold_the_same_groups():
    for name in ("alerts", "recording_rules"):
        plain = yaml.safe_load((GENERATED / f"rules/{name}.yaml").read_text())
        resource = yaml.safe_load((GENERATED / f"prometheusrules/{name}.yaml").read_text())
        assert resource["spec"] == plain
        assert re.fullmatch(r"[a-z0-9-]+", resource["metadata"]["name"])


def violations(schema: dict, value: object, path: str = ""):
    """Yield where a value breaks the part of OpenAPI that the operator's schema uses."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield f"{path}: {value!r} is neither number nor text"
        return
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if not isinstance(value, types[schema["type"]]):
        yield f"{path}: {value!r} is no {schema['type']}"
        return
    if isinstance(value, str):
        if not re.search(schema.get("pattern", ""), value):
            yield f"{path}: {value!r} does not match {schema['pattern']}"
        if len(value) < schema.get("minLength", 0):
            yield f"{path}: {value!r} is too short"
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from violations(schema["items"], item, f"{path}[{i}]")
    elif isinstance(value, dict):
        yield from _object_violations(schema, value, path)


def _object_violations(schema: dict, value: dict, path: str):
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    yield from (f"{path}.{key}: missing" for key in schema.get("required", ()) if key not in value)
    for key, item in value.items():
        if key in properties:
            yield from violations(properties[key], item, f"{path}.{key}")
        elif isinstance(others, dict):
            yield from violations(others, item, f"{path}.{key}")
        elif properties:
            yield f"{path}.{key}: unknown"


def operators_schema() -> dict:
    if not SHARED_CRD.is_file():
        pytest.skip(f"the operator's CustomResourceDefinition is not at {SHARED_CRD}")
    (version,) = yaml.safe_load(SHARED_CRD.read_text())["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("name", ["alerts", "recording_rules"])
def test_custom_resources_fit_the_operators_schema(name):
    resource = yaml.safe_load((GENERATED / f"prometheusrules/{name}.yaml").read_text())
    assert list(violations(operators_schema(), resource)) == []


def test_the_schema_check_finds_faults():
    rules = [{"alert": "A", "expr": "1", "for": "soon", "labels": {"x": 1}, "surprise": 1}]
    resource = {"kind": "PrometheusRule", "spec": {"groups": [{"name": "g", "rules": rules}]}}
    found = "\n".join(violations(operators_schema(), resource))
    assert "metadata: missing" not in found.replace(".metadata", "")
    assert ".for: 'soon' does not match" in found
    assert ".labels.x: 1 is no string" in found
    assert ".surprise: unknown" in found


@pytest.mark.parametrize(
    "value",
    [
        {"a": "x: y # z", "b": 'quotes " and \\', "c": "two\nlines", "d": {}, "e": []},
        {"list": [{"a": 1, "b": {"c": [1, 2, "3"]}}, "text", [1, [2]]], "t": True, "f": 0.5},
        [{"a": "on"}, {"b": "null"}, "ü {{ $labels.x }}", ""],
    ],
)
def test_yaml_says_what_it_was_given(value):
    assert yaml.safe_load(dump(value)) == value
