"""Whose a job is whose pods are labelled differently, such as its launcher and its workers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from panel_queries import expression, gives
from promtool_tests import tried
from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.metrics import pods
from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.intake.observed import gathered as put_together
from rankscope_analyzers.watch.goodput import Goodput
from rankscope_dashboards.expressions.promql import JOB_INFO_RECORD
from rankscope_dashboards.rules import recording_rules
from servers import require_server
from watched_goodput import look

__all__ = ["gives"]

Info = tuple[str, str, str, str]
"""The agent's pod, its node, the class and the owner that it states."""


def info(pod: str, node: str, job_class: str, owner: str) -> str:
    stated = f'class="{job_class}",owner="{owner}",team="",project=""'
    return f'rankscope_job_info{{node="{node}",job_id="team/llm",pod="{pod}",{stated}}}'


def chosen(folder: Path, series: dict[str, str], wanted: dict[int, tuple[str, str]]) -> None:
    """Let promtool see whose the job is by the minute: its class and its owner."""
    (record,) = (
        one
        for group in recording_rules.GROUPS
        for one in group.records
        if one.name == JOB_INFO_RECORD
    )
    rules = {"name": "job", "rules": [{"record": record.name, "expr": record.expression}]}
    (folder / "rules.yaml").write_text(json.dumps({"groups": [rules]}))
    checks = []
    for minute, (job_class, owner) in wanted.items():
        labels = f'{JOB_INFO_RECORD}{{job_id="team/llm",class="{job_class}",owner="{owner}"}}'
        found = [{"labels": labels, "value": 1}]
        checks.append({"expr": record.name, "eval_time": f"{minute}m", "exp_samples": found})
    block = {
        "interval": "1m",
        "input_series": [{"series": one, "values": text} for one, text in series.items()],
        "promql_expr_test": checks,
    }
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [block]}
    (folder / "test.yaml").write_text(json.dumps(test))
    done = tried(folder, require_server("promtool"))
    assert done.returncode == 0, done.stdout + done.stderr


EVE, BOB, NOBODY = ("production", "eve"), ("batch", "bob"), ("", "")


@pytest.mark.parametrize("agent", ["a", "z"])
def test_labels_count_before_none_and_outlast_the_exchange_of_an_agent(tmp_path, agent):
    """The one node whose pods have labels is silent for two minutes; the launchers' are not."""
    series = {
        info(agent, "n0", *EVE): "1x60 stale",
        info("m", "n0", *EVE): "_x62 1x60",
        **{info(f"l{number}", f"l{number}", *NOBODY): "1x120" for number in range(3)},
    }
    chosen(tmp_path, series, dict.fromkeys((0, 30, 60, 61, 62, 64, 70, 120), EVE))


@pytest.mark.parametrize("agents", [("a", "z"), ("z", "a")], ids="".join)
def test_of_different_labels_those_of_most_nodes_count_and_stay_at_a_tie(tmp_path, agents):
    """A second node of the first owner comes and goes; then there is one of each."""
    first, second = agents
    series = {
        info(first, "n0", *EVE): "1x200",
        info("m", "n1", *EVE): "1x60 stale",
        info(second, "n2", *BOB): "1x200",
        info("n", "n3", *BOB): "_x100 1x40 stale",
    }
    wanted = {30: EVE, 58: EVE, 80: EVE, 98: EVE, 105: BOB, 130: BOB, 150: BOB, 200: BOB}
    chosen(tmp_path, series, wanted)


def test_a_job_without_any_labels_has_none_and_loses_those_that_it_had(tmp_path):
    series = {
        info("a", "n0", *EVE): "1x30 stale",
        info("b", "n1", *NOBODY): "1x60",
    }
    chosen(tmp_path, series, {20: EVE, 50: NOBODY})
    series = {info("b", "n1", *NOBODY): "1x60"}
    chosen(tmp_path, series, {20: NOBODY})


def stated_by(node: str, project: str, job_class: str) -> Series:
    labels = {"job_id": "job", "project": project, "class": job_class}
    return Series(node, pods.JOB_INFO.name, labels, np.array([1000.0]), np.array([1.0]))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("stated", "wanted"),
    [
        ([("llm", "production"), ("", ""), ("", "")], ("llm", "production")),
        ([("llm", "a"), ("vision", "b"), ("llm", "a")], ("llm", "a")),
        ([("", ""), ("", "")], ("", "")),
    ],
)
def test_gpu_time_counts_for_what_most_nodes_state_whatever_their_order(stated, wanted, backwards):
    goodput = Goodput(60.0)
    series = [stated_by(f"n{number}", *one) for number, one in enumerate(stated)]
    look(goodput, 1300.0, observed=put_together(series[::-1] if backwards else series))
    goodput.announce()
    owners = {
        one.labels[:2] for one in goodput.samples() if one.metric is metrics.PROJECT_GPU_SECONDS
    }
    assert owners == {wanted}


def test_jobs_that_lost_most_are_of_the_project_that_labelled_pods_state(gives):
    series, expected = {}, {}
    for job, projects in (("labelled", ("", "llm", "")), ("bare", ("", ""))):
        key = f'job_id="team/{job}"'
        series[f'rankscope_job_lost_gpu_seconds_total{{{key},cause="gpu_lost"}}'] = "0+60x20"
        whose = f',project="{"".join(projects)}"' if any(projects) else ""
        expected[f'{{{key}{whose},clusters="All"}}'] = 600 / 3600
        for number, project in enumerate(projects):
            stated = f'node="n{number}",{key},project="{project}",class=""'
            series[f"rankscope_job_info{{{stated}}}"] = "1x20"
    gives(expression("executive", "Jobs that lost most"), series, expected)
