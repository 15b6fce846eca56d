"""Runbooks: one per alert, complete, and naming nothing that does not exist."""

import contextlib
import io
import json
import re
import subprocess
from pathlib import Path

import pytest

from alert_series import FOREIGN
from dashboard_lint import panels_of
from panel_queries import MODELS, gives
from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_analyzers import cli
from rankscope_dashboards.rules import recording_rules
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server

__all__ = ["gives"]

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/runbooks"
BOOKS = sorted(path.stem for path in FOLDER.glob("*.md"))
BY_NAME = {alert.name: alert for alert in ALERTS}
SECTIONS = [
    "Meaning",
    "Impact",
    "What it is not",
    "Diagnosis",
    "Mitigation",
    "How to confirm it is over",
    "Escalation",
    "Signals behind it",
]
RECORDS = {record.name for group in recording_rules.GROUPS for record in group.records}


def text(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def code(name: str) -> list[str]:
    """Return the code spans of a runbook, those that go over a line's end included."""
    return [re.sub(r"\s+", " ", one) for one in re.findall(r"`([^`]+)`", text(name))]


def is_query(span: str) -> bool:
    return bool(re.search("rankscope_|kube_", span)) and any(sign in span for sign in "({=<>/*")


def test_every_alert_has_a_runbook_and_every_runbook_an_alert():
    assert sorted(BY_NAME) == BOOKS


@pytest.mark.parametrize("name", BOOKS)
def test_a_runbook_has_all_sections(name):
    parts = re.split(r"^## (.*)$", text(name), flags=re.MULTILINE)
    assert re.match(r"# \S", parts[0])
    assert parts[1::2] == SECTIONS
    empty = [
        title for title, body in zip(parts[1::2], parts[2::2], strict=True) if not body.strip()
    ]
    assert not empty


@pytest.mark.parametrize("name", BOOKS)
def test_diagnosis_has_a_query_and_commands(name):
    diagnosis = text(name).split("## Diagnosis")[1].split("## Mitigation")[0]
    assert re.search(r"rankscope_\w+|kube_\w+|ALERTS", diagnosis), "PromQL"
    tools = r"`(rankscope|kubectl|nvidia-smi|ibstat|curl|amtool|promtool|ethtool) "
    assert len(re.findall(tools, diagnosis)) >= 1
    assert len(re.findall(r"^\d+\. ", diagnosis, re.MULTILINE)) >= 2


@pytest.mark.parametrize("name", BOOKS)
def test_signals_are_those_of_the_alert(name):
    alert = BY_NAME[name]
    signals = text(name).split("## Signals behind it")[1]
    pattern = r"(?<![\w:])(?:\w+:)?rankscope_(?!io_)\w+(?::\w+)?|kube_\w+"
    used = set(re.findall(pattern, alert.expression))
    assert set(re.findall(pattern, signals)) == used
    assert f"| pending before it fires | {alert.hold} |" in signals
    assert f"| keeps firing for | {alert.keep} |" in signals
    assert (f"| needs | {alert.needs} |" in signals) == bool(alert.needs)
    assert "| needs |" not in signals or alert.needs


@pytest.mark.parametrize("name", BOOKS)
def test_metrics_in_a_runbook_exist(name):
    names = {metric.name for metric in CATALOGUE} | RECORDS | FOREIGN
    histograms = {metric.name for metric in CATALOGUE if metric.kind == "histogram"}
    names |= {f"{one}_{part}" for one in histograms for part in ("bucket", "sum", "count")}
    named = set()
    for span in code(name):
        named |= set(re.findall(r"(?<![\w:.])(?:\w+:)?rankscope_\w+(?::\w+)?|\bkube_\w+", span))
    named.discard("rankscope_probe")  # the module
    unknown = {one for one in named - names if not any(known.startswith(one) for known in names)}
    assert not unknown


@pytest.mark.parametrize("name", BOOKS)
def test_queries_in_runbooks_name_labels_that_their_series_have(name):
    metrics = {metric.name: metric for metric in CATALOGUE}
    for span in code(name):
        for series, matchers in re.findall(r"(?<![\w:])(rankscope_\w+){([^}]*)}", span):
            metric = metrics[re.sub(r"_(bucket|count|sum)$", "", series)]
            labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers))
            assert labels <= {*metric.labels, "node", "cluster"}, span


@pytest.mark.parametrize("name", BOOKS)
def test_commands_for_kubernetes_can_be_typed_as_they_stand(name):
    """Pods have a namespace, and nodes have pods that kubectl asks about before it drains them."""
    for span in code(name):
        if re.match(r"kubectl (logs|exec|(describe|get) (pods?|events))\b", span):
            assert re.search(r" (-n NAMESPACE|-A)\b", span), span
        if span.startswith("kubectl drain"):
            assert "--ignore-daemonsets --delete-emptydir-data" in span


def help_of(*command: str) -> str:
    """Return what a command of ours says about itself; fails if there is none of that name."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), pytest.raises(SystemExit) as ended:
        cli.main([*command, "--help"])
    assert ended.value.code == 0, command
    return told.getvalue()


def test_commands_of_ours_exist_with_their_options():
    used: dict[tuple[str, ...], set[str]] = {}
    for name in BOOKS:
        for span in code(name):
            words = span.split()
            if words[0] == "rankscope" and len(words) > 1:
                command = tuple(words[1 : 3 if words[1] == "explain" else 2])
                options = {word for word in words if word.startswith("--")}
                used.setdefault(command, set()).update(options)
    assert len(used) > 5
    for command, options in used.items():
        told = help_of(*command)
        assert not {one for one in options if not re.search(rf"{one}\b", told)}, command


def test_queries_in_runbooks_are_promql(tmp_path):
    promtool = require_server("promtool")
    queries = sorted({span for name in BOOKS for span in code(name) if is_query(span)})
    assert len(queries) > 50
    rules = [{"record": f"r{i}", "expr": one} for i, one in enumerate(queries)]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_runbooks_name_only_runbooks_that_exist():
    for name in BOOKS:
        for other in re.findall(r"\bRankscope[A-Z]\w+", text(name)):
            assert other in BY_NAME, f"{name} names {other}"


WEBHOOK = "RankscopeIncident"
"""The one name of all that the watch's webhook posts; each body has the runbook of its finding."""


def test_runbooks_that_findings_name_exist():
    named = set()
    for path in (ROOT / "analyzers").rglob("*.py"):
        named |= set(re.findall(r"\bRankscope[A-Z]\w+", path.read_text(encoding="utf-8")))
        for old in re.findall(r"docs/runbooks/(\w+)\.md", path.read_text(encoding="utf-8")):
            named.add(old)
    assert len(named) > 30
    assert named - {WEBHOOK} <= set(BOOKS)


@pytest.mark.parametrize("view", MODELS)
def test_a_command_that_a_panel_names_is_explained_in_a_runbook_it_links_to(view):
    for one in panels_of(MODELS[view]):
        linked = "".join(
            (FOLDER / link["url"].rpartition("/")[2]).read_text() for link in one["links"]
        )
        for command in re.findall(r"rankscope (?:explain [\w-]+|xids)", one["description"]):
            assert command in linked, f"{one['title']}: {command}"


def test_gpus_that_are_taken_are_those_of_pods_that_have_a_node_and_have_not_ended(gives):
    """Not of the pod that waits: it would look as if more were taken than there are."""
    (query,) = [
        one for one in code("RankscopeGpuPodsUnscheduled") if one.startswith("sum(kube_pod_")
    ]
    series = {}
    for pod, node, phase in (
        ("runs", "a", "Running"),
        ("pulls", "b", "Pending"),
        ("waits", "", "Pending"),
        ("ended", "a", "Succeeded"),
    ):
        of_pod = f'namespace="team",pod="{pod}"'
        gpus = f'{of_pod},node="{node}",container="main",resource="nvidia_com_gpu"'
        series[f"kube_pod_container_resource_requests{{{gpus}}}"] = "8x20"
        for one in ("Pending", "Running", "Succeeded"):
            state = f'kube_pod_status_phase{{{of_pod},phase="{one}"}}'
            series[state] = f"{one == phase:d}x20"
    gives(query, series, {"{}": 16})
