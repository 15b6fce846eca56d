"""What is no alert when agents restart, are exchanged, go unscraped or leave with their nodes."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace

import pytest

from alert_series import JOB, LOG_POD, LOST_AT_RESTART, NODE, failure
from alert_timelines import Case, Series, gauge, steady
from clusters_apart import Followed, follow_together, of_alert
from named_alerts import BY_NAME, fixed
from promtool_tests import follow
from rankscope_dashboards.generate import everything
from rankscope_dashboards.rules.rule_files import Links
from servers import require_server


def read_again(*pods: str) -> Followed:
    """A job makes a step a second for days, and its rings hold those of 18 hours."""
    begun, held = 1500, 65_536

    def before(i: int, step: int) -> str:
        return f"{60 * i * step}" if i * step < begun else "_"

    def after(i: int, step: int) -> str:
        since = i * step - begun
        return "_" if since < 0 else f"{60 * since + (held if since else held // 2)}"

    def values(*parts):
        return lambda states, step: [
            next((one for one in (part(i, step) for part in parts) if one != "_"), "_")
            for i in range(len(states))
        ]

    first, second = (
        f'rankscope_job_samples_total{{{NODE},{JOB},pod="{pod}",instance="{pod}"}}' for pod in pods
    )
    alone = (Series(first, values(before)), Series(second, values(after)))
    series = alone if first != second else (Series(first, values(before, after)),)
    checks = [(minute, 0) for minute in range(1400, 4300, 60)]
    return of_alert("RankscopeThroughputDegraded24h", series, checks)


READ_AGAIN = {"restarted": read_again("a", "a"), "replaced": read_again("a", "b")}


@pytest.fixture(scope="module")
def said_of_throughput(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules")
    return follow_together(folder, require_server("promtool"), READ_AGAIN, step=4, sample=2)


@pytest.mark.parametrize("agent", READ_AGAIN)
def test_what_an_agent_reads_again_is_no_throughput_of_that_day(agent, said_of_throughput):
    assert not said_of_throughput[agent]


def test_gpus_that_are_read_from_dcgm_now_are_not_missed(tmp_path):
    dcgm = gauge('rankscope_collector_success{node="gpu-07",collector="dcgm"}', 1, 0)
    states = [*(["good"] * 440), *(["bad"] * 400)]
    alert, promtool = BY_NAME["RankscopeCollectorFailing"], require_server("promtool")
    lost = tuple(fixed(one, states) for one in LOST_AT_RESTART.series)
    for series, told in ((lost, 1), ((*lost, fixed(dcgm, states)), 0)):
        done = follow(tmp_path, promtool, alert, Case(series), 800, [(430, 0), (500, told)])
        assert done.returncode == 0, done.stdout + done.stderr


def with_gap(selector: str, value: float, gap: range) -> Series:
    """Return a constant that is not scraped in some minutes."""

    def values(states: Sequence[str], step: int) -> list[str]:
        return ["stale" if i * step in gap else f"{value}" for i in range(len(states))]

    return Series(selector, values)


OF_A_RANK = f'{NODE},{JOB},rank="0"'


def failed_before(gap: range) -> Followed:
    """Return a cluster in which things failed before a gap of scrapes, and which alerts may fire.

    Agents that are exchanged are silent for a minute or two, and remember what was before. Of all
    agents of a cluster, Prometheus misses what came while it was down.
    """
    pod = 'node="n",pod_namespace="t",pod_name="p"'
    series = (
        steady('rankscope_build_info{node="other"}'),
        *(with_gap(failure("Error", f'job_id="j{i}"'), 3, gap) for i in range(5)),
        with_gap(f'rankscope_nccl_ib_errors_total{{{pod},device="m",status="12"}}', 3, gap),
        with_gap(f'rankscope_nccl_collective_timeouts_total{{{pod},op="ALLREDUCE"}}', 3, gap),
        with_gap(
            f'rankscope_job_log_nonfinite_losses_total{{{pod},framework="f",source="s"}}', 3, gap
        ),
        with_gap(f"rankscope_checkpoint_write_failures_total{{{OF_A_RANK}}}", 3, gap),
    )
    told = ("PodFailed", "JobFailureCascade", "NcclIbErrors", "NcclCollectiveTimeout")
    names = [f"Rankscope{name}" for name in (*told, "NonFiniteLoss", "CheckpointFailing")]
    # In the first half hour nothing is known of what was before, and the alert is kept for another.
    return Followed(series, [(name, minute, 0) for name in names for minute in range(90, 290, 2)])


def told_again(name: str, selector: str, since: int, fires: int) -> Followed:
    """Return a cluster where another pod tells something from minute 202 on.

    With the monitors of the operator, series carry the name of the agent's pod.
    """

    def by_pod(pod: str, value: int, minutes: range) -> Series:
        def values(states: Sequence[str], step: int) -> list[str]:
            told = [f"{value}" if i * step in minutes else "_" for i in range(len(states))]
            return ["stale" if i * step == minutes.stop else one for i, one in enumerate(told)]

        return Series(f'{selector},pod="{pod}",instance="{pod}:9877"}}', values)

    series = (by_pod("a", 3, range(200)), by_pod("b", since, range(202, 360)))
    checks = [(150, 0), (198, 0), (204, fires), (210, fires), (358, 0)]
    return of_alert(name, series, checks)


TOLD_AGAIN = [
    ("RankscopeNonFiniteLoss", f"rankscope_nonfinite_losses_total{{{OF_A_RANK}"),
    ("RankscopeCheckpointFailing", f"rankscope_checkpoint_write_failures_total{{{OF_A_RANK}"),
    ("RankscopeCheckpointCorrupt", f"rankscope_checkpoint_load_failures_total{{{OF_A_RANK}"),
    ("RankscopeCheckpointOverwritten", f"rankscope_checkpoint_shared_paths_total{{{NODE},{JOB}"),
    ("RankscopeNcclIbErrors", f'rankscope_nccl_ib_errors_total{{{LOG_POD},device="m",status="12"'),
    (
        "RankscopeNcclCollectiveTimeout",
        f'rankscope_nccl_collective_timeouts_total{{{LOG_POD},op="a"',
    ),
]
GAPS = {
    f"for {len(gap)} minutes": failed_before(gap)
    for gap in (range(150, 154), range(150, 160), range(150, 235))
}
SUCCESSORS = {
    f"{name} of {since} after 3": told_again(name, selector, since, fires)
    for name, selector in TOLD_AGAIN
    for since, fires in ((3, 0), (4, 1))
}


def happened_in(gap: range) -> Followed:
    """Return a cluster in which something happens while nothing is scraped."""

    def values(states: Sequence[str], step: int) -> list[str]:
        minutes = range(0, len(states) * step, step)
        return ["stale" if i in gap else "2" if i < gap.start else "3" for i in minutes]

    pod = 'node="n",pod_namespace="t",pod_name="p"'
    failed = Series(f'rankscope_nccl_collective_timeouts_total{{{pod},op="ALLREDUCE"}}', values)
    checks = [(gap.start - 2, 0), (gap.stop + 2, 1)]
    return of_alert("RankscopeNcclCollectiveTimeout", (failed,), checks)


MISSED = {
    "within half an hour": happened_in(range(100, 130)),
    # After which it is unknown when it happened.
    "within three hours": happened_in(range(300, 480)),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What promtool has to say against each."""
    folder = tmp_path_factory.mktemp("rules")
    return follow_together(folder, require_server("promtool"), GAPS | SUCCESSORS, step=2, sample=1)


@pytest.mark.parametrize("gap", GAPS)
def test_what_failed_before_a_gap_of_scrapes_is_not_new_after_it(gap, said):
    assert not said[gap]


@pytest.mark.parametrize("successor", SUCCESSORS)
def test_what_an_agent_told_is_not_new_when_its_successor_tells_it(successor, said):
    assert not said[successor]


def test_what_happens_while_nothing_is_scraped_is_new_after_it(tmp_path):
    said = follow_together(tmp_path, require_server("promtool"), MISSED, step=2, sample=1)
    assert said == dict.fromkeys(MISSED, "")


def test_a_node_that_left_the_cluster_is_not_missed(tmp_path):
    """Autoscalers take nodes away; kube-state-metrics tells which nodes there are."""
    gone = gauge('rankscope_build_info{node="gpu-07",version="1"}', None, 1)
    case = Case((gone, steady('kube_node_info{node="gpu-08"}')))
    alert = BY_NAME["RankscopeAgentDown"]
    states = [*(["good"] * 30), *(["bad"] * 90)]
    case = replace(case, series=tuple(fixed(one, states) for one in case.series))
    checks = [(minute, 0) for minute in (20, 45, 60, 80)]
    done = follow(tmp_path, require_server("promtool"), alert, case, 119, checks)
    assert done.returncode == 0, done.stdout + done.stderr
    without = replace(case, series=case.series[:1])
    checks = [(20, 0), (45, 1), (80, 1)]
    done = follow(tmp_path, require_server("promtool"), alert, without, 119, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_owners_of_one_job_after_a_restart_cost_no_job_its_alert(tmp_path):
    (tmp_path / "alerts.yaml").write_text(everything(Links())["rules/alerts.yaml"])
    evicted = {f'rankscope_job_interruptions{{job_id="t/{job}"}}': "0x10 5x50" for job in "ab"}
    owned = {f'job:rankscope_job:info{{job_id="t/a",class="{one}"}}': "1x60" for one in "xy"}
    series = [{"series": one, "values": text} for one, text in (evicted | owned).items()]
    count = "count(ALERTS{alertname='RankscopeJobRequeued',alertstate='firing'})"
    asked = {"expr": count, "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": 2}]}
    block = {"interval": "30s", "input_series": series, "promql_expr_test": [asked]}
    tests = {"rule_files": ["alerts.yaml"], "evaluation_interval": "30s", "tests": [block]}
    (tmp_path / "test.yaml").write_text(json.dumps(tests))
    command = [require_server("promtool"), "test", "rules", "test.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
