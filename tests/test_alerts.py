import json
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import yaml

from alert_cases import CASES
from alert_series import (
    FOREIGN,
    LOGGED_THROUGHPUT,
    LOST_AT_RESTART,
    NVLINK_XIDS,
    UNWATCHED_NODE,
    UNWATCHED_PAIR,
    UNWATCHED_STRAGGLER,
    spent,
)
from alert_texts import TEXTS
from alert_timelines import Case, Series, counter, heartbeat, steady
from clusters_apart import none_fires
from promtool_tests import follow, needed, run
from rankscope_agent.collecting.summary import gpus, nccl_conditions
from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_agent.contract.kernel.xid import XIDS
from rankscope_agent.contract.metrics import summary
from rankscope_dashboards.expressions.joins import with_owner
from rankscope_dashboards.generate import everything
from rankscope_dashboards.rules import recording_rules
from rankscope_dashboards.rules.alerts import ALERTS, GROUPS
from rankscope_dashboards.rules.alerts.gpu import FATAL_XIDS
from rankscope_dashboards.rules.rule_files import Links
from servers import require_server

BY_NAME = {alert.name: alert for alert in ALERTS}
METRICS = {metric.name: metric for metric in CATALOGUE}
RECORDS = [record for group in recording_rules.GROUPS for record in group.records]
TARGET_LABELS = {"cluster", "node"}


def expressions():
    yield from ((alert.name, alert.expression) for alert in ALERTS)
    yield from ((record.name, record.expression) for record in RECORDS)


def queries_of_templates():
    for alert in ALERTS:
        for quoted in re.findall(r"`([^`]*rankscope_[^`]*)`", alert.description):
            if "{" in quoted:
                yield alert.name, quoted


def metric_of(name: str):
    """Return the metric behind a series' name, which histograms have several of."""
    return METRICS.get(name) or METRICS.get(re.sub(r"_(bucket|count|sum)$", "", name))


@pytest.mark.parametrize("name", BY_NAME)
def test_an_alert_fires_in_time_says_what_it_should_and_ends(name, tmp_path):
    promtool = require_server("promtool")
    expected = json.loads(TEXTS.read_text())[name]
    done = run(tmp_path, promtool, BY_NAME[name], CASES[name], expected)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_text_is_an_error_of_its_template():
    assert "error expanding template" not in TEXTS.read_text()


def test_every_alert_is_tried():
    assert set(CASES) == set(BY_NAME)
    assert len(ALERTS) == len(BY_NAME), "names are unique"
    silent = {name for name, case in CASES.items() if not case.has_below}
    assert silent == {"RankscopeWatchdog"}


@pytest.mark.parametrize(
    "case",
    [UNWATCHED_STRAGGLER, UNWATCHED_NODE, UNWATCHED_PAIR],
    ids=["rank", "node", "pair of nodes"],
)
def test_a_straggler_is_found_without_a_watch(case, tmp_path):
    alert = BY_NAME["RankscopeStraggler"]
    done = run(tmp_path, require_server("promtool"), alert, case, None)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_driver_that_does_not_come_up_with_its_node_is_missed(tmp_path):
    alert = BY_NAME["RankscopeCollectorFailing"]
    done = run(tmp_path, require_server("promtool"), alert, LOST_AT_RESTART, None)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", NVLINK_XIDS, ids=["kernel's", "driver's"])
def test_an_xid_of_a_broken_nvlink_is_enough(case, tmp_path):
    alert = BY_NAME["RankscopeNvlinkFault"]
    done = run(tmp_path, require_server("promtool"), alert, case, None)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("labels", ['{shard="0",shards="1"}', ""], ids=["alone", "older"])
def test_a_watch_that_shares_no_jobs_is_missed(labels, tmp_path):
    case = Case((heartbeat(f"rankscope_watch_last_evaluation_timestamp_seconds{labels}"),), lag=6)
    done = run(tmp_path, require_server("promtool"), BY_NAME["RankscopeWatchLagging"], case, None)
    assert done.returncode == 0, done.stdout + done.stderr


def test_throughput_that_is_only_printed_counts_as_well(tmp_path):
    alert = BY_NAME["RankscopeThroughputDegraded24h"]
    done = run(tmp_path, require_server("promtool"), alert, LOGGED_THROUGHPUT, None)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "name", ["RankscopeStraggler", "RankscopeJobStalled", "RankscopeGangPartial"]
)
def test_a_job_of_which_nobody_knows_the_owner_has_its_alerts_too(name, tmp_path):
    case = CASES[name]
    anonymous = tuple(one for one in case.series if "rankscope_job_info" not in one.selector)
    assert len(anonymous) == len(case.series) - 1
    case = Case(anonymous, case.lag, case.linger, case.settle, case.step, case.gap)
    done = run(tmp_path, require_server("promtool"), BY_NAME[name], case, None)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "step", "silent", "fires"),
    [
        # One-hour windows need half an hour of data, and two minutes more to fire.
        ("RankscopeGoodputBurnFast", 1, (5, 15, 30), (40, 60, 120)),
        # One-day windows need twelve hours, and one hour more.
        ("RankscopeGoodputBurnSlow", 4, (60, 300, 600, 712), (820, 1200)),
    ],
)
def test_a_burn_is_not_told_from_less_data_than_half_its_window(
    name, step, silent, fires, tmp_path
):
    lost, observed = counter(spent("hang"), 540), counter(spent("productive"), 60)
    checks = [*((minute, 0) for minute in silent), *((minute, 1) for minute in fires)]
    case = Case((lost, observed), step=step)
    done = follow(tmp_path, require_server("promtool"), BY_NAME[name], case, fires[-1], checks)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["RankscopeJobStalled", "RankscopePodFailed"])
def test_a_job_without_project_class_and_owner_is_a_ticket_for_the_platform(name, tmp_path):
    """Pods without such labels have them empty: the same as a job that is not production."""
    case = CASES[name]
    bare = tuple(
        steady('rankscope_job_info{node="gpu-07",job_id="team/llm"}')
        if one.selector.startswith("rankscope_job_info")
        else one
        for one in case.series
    )
    assert bare != case.series
    (known,) = json.loads(TEXTS.read_text())[name]
    assert known["labels"]["severity"] == "page"
    unowned = {"class", "owner", "team", "project"}
    labels = {key: value for key, value in known["labels"].items() if key not in unowned}
    expected = [{"labels": labels | {"severity": "ticket"}, "annotations": known["annotations"]}]
    done = run(
        tmp_path, require_server("promtool"), BY_NAME[name], replace(case, series=bare), expected
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_agent_that_was_there_is_missed_without_kube_state_metrics(tmp_path):
    case = CASES["RankscopeAgentDown"]
    ours = tuple(one for one in case.series if not one.selector.startswith("kube_"))
    assert 0 < len(ours) < len(case.series)
    case = replace(case, series=ours)
    done = run(tmp_path, require_server("promtool"), BY_NAME["RankscopeAgentDown"], case, None)
    assert done.returncode == 0, done.stdout + done.stderr


OF_OTHERS_TOO = {
    *("RankscopeCheckpointStoreFilling", "RankscopeElasticJobDegraded"),
    "RankscopeStorageClientSlow",
}
"""Alerts that other exporters only add something to: their cases are without those."""


@pytest.mark.parametrize(
    "name", [one.name for one in ALERTS if one.needs and one.name not in OF_OTHERS_TOO]
)
def test_alerts_that_need_kube_state_metrics_are_silent_without_it(name, tmp_path):
    case = CASES[name]
    ours = tuple(one for one in case.series if not one.selector.startswith("kube_"))
    alert = BY_NAME[name]
    # An agent that was there for an hour is missed all the same: here, it never was.
    checks = [(minute, 0) for minute in (10, 60, 120)]
    case = replace(case, series=tuple(one for one in ours if "build_info" not in one.selector))
    done = follow(tmp_path, require_server("promtool"), alert, case, 120, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def restarted(selector: str) -> Series:
    """Return a counter that stands high, and at 0 from its half on."""

    def values(states: Sequence[str], _step: int) -> list[str]:
        half = len(states) // 2
        return ["1000000"] * half + ["0"] * (len(states) - half)

    return Series(selector, values)


def counters_that_start_again() -> list[Series]:
    pod, job = 'node="n",pod_namespace="t",pod_name="p"', 'node="n",job_id="j"'
    series = [
        'rankscope_edac_errors_total{node="n",severity="uncorrected"}',
        f'rankscope_job_log_nonfinite_losses_total{{{pod},framework="f",source="s"}}',
        f'rankscope_nccl_ib_errors_total{{{pod},device="mlx5_0",status="12"}}',
        f"rankscope_job_samples_total{{{job}}}",
        f"rankscope_step_latency_seconds_count{{{job}}}",
        'rankscope_job_lost_gpu_seconds_total{job_id="j",cause="gpu_lost"}',
        spent("restart"),
        spent("productive"),
    ]
    return [restarted(one) for one in series]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What promtool has to say against clusters without a reason for any alert."""
    idle = (steady('up{node="gpu-07"}'), steady('rankscope_build_info{node="gpu-07"}'))
    # What is there from the first moment on is taken for new once: the agent's own start.
    late = ("RankscopeNonFiniteLoss", "RankscopeNcclIbErrors")
    clusters = {"idle": (idle, ()), "restarted": (counters_that_start_again(), late)}
    return none_fires(tmp_path_factory.mktemp("rules"), require_server("promtool"), clusters, 4)


@pytest.mark.parametrize("cluster", ["idle", ""], ids=["one", "none"])
def test_a_cluster_without_jobs_and_exporters_has_no_alerts(cluster, said):
    """Absent series are no zeroes, and nothing divides by what is not there."""
    assert not said[cluster]


def test_counters_that_start_again_are_no_events(said):
    assert not said["restarted"]


@pytest.mark.parametrize(("name", "expression"), [*expressions(), *queries_of_templates()])
def test_rules_name_only_series_that_exist(name, expression):
    named = set(re.findall(r"(?<![\w:])(?:\w+:)?rankscope_\w+(?::\w+)?", expression))
    named |= set(re.findall(r"kube_\w+", expression))
    known = {*FOREIGN, *(record.name for record in RECORDS)}
    unknown = {one for one in named if not (metric_of(one) or one in known)}
    assert not unknown, name


@pytest.mark.parametrize(("name", "expression"), [*expressions()])
def test_matchers_name_only_labels_that_a_series_has(name, expression):
    for series, matchers in re.findall(r"(rankscope_\w+)\{([^}]*)\}", expression):
        labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers))
        assert labels <= {*metric_of(series).labels, *TARGET_LABELS}, f"{name}: {series}"


@pytest.mark.parametrize(("name", "expression"), [*expressions()])
def test_no_rule_selects_a_bucket_by_its_text(name, expression):
    """Prometheus 3 writes le="1.0" where 2 kept le="1"."""
    assert "le=" not in expression.replace('"le="', ""), name


def test_aggregations_keep_clusters_apart():
    for name, expression in expressions():
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            assert "cluster" in labels.split(", "), f"{name}: by ({labels})"


def test_fatal_xids_are_those_of_the_table():
    codes = {int(code) for code in FATAL_XIDS.split("|")}
    assert codes == {code for code, known in XIDS.items() if known.severity == "fatal"}
    assert {48, 79} <= codes
    assert not {13, 31, 43} & codes


def test_conditions_that_alerts_ask_for_are_those_that_agents_tell():
    asked = {}
    for alert in ALERTS:
        for series, matched in re.findall(
            r'(rankscope_(?:gpu|pod)_condition\w*)\{condition=~?"([^"]*)"', alert.expression
        ):
            asked.setdefault(series, set()).update(matched.split("|"))
    assert asked == {
        summary.GPU_CONDITION.name: set(gpus.CONDITIONS),
        summary.POD_CONDITION.name: set(nccl_conditions.CONDITIONS),
    }


def test_who_is_paged_is_written_down():
    paged = {alert.name for alert in ALERTS if alert.severity == "page"}
    assert paged == {
        "RankscopeGoodputBurnFast",
        "RankscopeJobFailureCascade",
        "RankscopeNodeResourceExhausted",
    }, "jobs page by class, and single GPUs make tickets"
    assert all(alert.scope == "job" for alert in ALERTS if alert.severity == "by_class")
    assert all(alert.why and alert.summary and alert.description for alert in ALERTS)


@pytest.mark.parametrize("namespaces", [(), ("prod",), ("tea", "eam", "team-b", "a/team")])
def test_a_jobs_labels_alone_page_nobody(namespaces, tmp_path):
    """Whoever starts a pod chooses its class, but not its namespace."""
    name = "RankscopePodFailed"
    (known,) = json.loads(TEXTS.read_text())[name]
    assert (known["labels"]["severity"], known["labels"]["class"]) == ("page", "production")
    assert known["labels"]["job_id"].startswith("team/")
    expected = [known | {"labels": known["labels"] | {"severity": "ticket"}}]
    links = Links(paging_namespaces=namespaces)
    promtool = require_server("promtool")
    done = run(tmp_path, promtool, BY_NAME[name], CASES[name], expected, links)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_committed_rule_pages_by_what_a_label_says():
    made = everything(Links())["rules/alerts.yaml"]
    rules = [rule for group in yaml.safe_load(made)["groups"] for rule in group["rules"]]
    assert {rule["labels"]["severity"] for rule in rules} == {"page", "ticket", "none"}


def test_alerts_of_jobs_carry_whose_the_job_is():
    of_jobs = [alert for alert in ALERTS if alert.scope == "job" and alert.severity != "none"]
    assert of_jobs
    joined = with_owner("X").split("X")[1]
    assert all(joined.split("\n")[0] in alert.expression for alert in of_jobs)


EXPORTERS = {"kube_": "kube-state-metrics", "kubelet_": "the kubelets'", "juicefs_": "JuiceFS"}


@pytest.mark.parametrize("series", EXPORTERS)
def test_alerts_that_need_another_exporter_say_so(series):
    """By their expressions and those of the records that these read; texts may do without."""
    for alert in ALERTS:
        read = alert.expression + json.dumps(needed(replace(alert, description="")))
        assert (series in read) == (EXPORTERS[series] in alert.needs), alert.name


def test_groups_have_names_of_their_own():
    names = [group.name for group in (*GROUPS, *recording_rules.GROUPS)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["rules/alerts.yaml", "rules/recording_rules.yaml"])
def test_mimir_takes_the_groups_without_other_limits_than_its_own(name):
    groups = yaml.safe_load(everything(Links())[name])["groups"]
    assert [one["name"] for one in groups if len(one["rules"]) > 20] == []
    assert len((*GROUPS, *recording_rules.GROUPS)) <= 70
