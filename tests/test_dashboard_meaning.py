"""Whether panels mean what they say: what their queries give for series where that can go wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from alert_timelines import tried
from dashboard_lint import panels_of
from dashboard_models import dashboard_models
from rankscope_dashboards.rules import recording_rules
from scraped_stack import filled
from servers import require_server

MODELS = {model["uid"].removeprefix("rankscope-"): model for model in dashboard_models()}
ANY = dict.fromkeys(("cluster", "job_id", "node", "rank"), ".*")
ANY |= {"__rate_interval": "4m", "__interval": "1m"}

Series = Mapping[str, str]
"""Values each minute by name and labels, in promtool's notation."""


def panel(view: str, title: str) -> Any:
    (found,) = [one for one in panels_of(MODELS[view]) if one["title"] == title]
    return found


def expression(view: str, title: str, query: int = 0) -> str:
    return panel(view, title)["targets"][query]["expr"]


@pytest.fixture
def gives(tmp_path: Path):
    """Return a function that lets promtool compare what a query gives after some minutes."""
    promtool = require_server("promtool")

    def compare(
        query: str, series: Series, expected: Mapping[str, float], at: str = "20m", **chosen: str
    ) -> None:
        expected_samples = [{"labels": key, "value": value} for key, value in expected.items()]
        asked = {
            "expr": filled(query, {**ANY, **chosen}, "10m"),
            "eval_time": at,
            "exp_samples": expected_samples,
        }
        block = {
            "interval": "1m",
            "input_series": [{"series": one, "values": text} for one, text in series.items()],
            "promql_expr_test": [asked],
        }
        (tmp_path / "test.yaml").write_text(json.dumps({"rule_files": [], "tests": [block]}))
        done = tried(tmp_path, promtool)
        assert done.returncode == 0, done.stdout + done.stderr

    return compare


def gpu(number: int) -> str:
    return f'gpu="{number}",uuid="GPU-{number}",node="a"'


def test_a_gpu_that_is_lost_and_silent_is_one_gpu(gives):
    series = {f"rankscope_gpu_info{{{gpu(number)}}}": "1x20" for number in range(4)}
    series |= {f"rankscope_gpu_lost{{{gpu(number)}}}": f"{number == 0:d}x20" for number in range(4)}
    series |= {
        f"rankscope_gpu_unresponsive{{{gpu(number)}}}": f"{number < 2:d}x20" for number in range(4)
    }
    gives(expression("on-call", "Lost GPUs"), series, {"{}": 2})
    gives(expression("executive", "Broken GPUs"), series, {"{}": 2})


def test_a_gpu_without_a_state_is_no_lost_gpu(gives):
    series = {f"rankscope_gpu_info{{{gpu(0)}}}": "1x20"}
    gives(expression("on-call", "Lost GPUs"), series, {"{}": 0})


HELD = {f"rankscope_gpu_info{{{gpu(number)}}}": "1x20" for number in range(5)} | {
    f"rankscope_gpu_utilization_ratio{{{gpu(number)}}}": f"{number == 4:d}x20"
    for number in range(5)
}
HELD |= {
    'rankscope_gpu_allocation_info{uuid="GPU-0",node="a",job_id="t/j"}': "1x20",
    'rankscope_gpu_allocation_info{uuid="GPU-1::0",node="a"}': "1x20",
    'rankscope_gpu_allocation_info{uuid="GPU-1::1",node="a"}': "1x20",
    'rankscope_rank_info{job_id="local/j",rank="0",uuid="GPU-2",node="a"}': "1x20",
}


def test_an_idle_gpu_that_somebody_holds_is_no_spare(gives):
    gives(expression("executive", "Healthy spare GPUs"), HELD, {"{}": 1})


def test_a_gpu_in_time_slices_is_allocated_once(gives):
    gives(expression("executive", "GPUs allocated in Kubernetes"), HELD, {"{}": 2})


JOBS = {
    'rankscope_job_ranks_alive{job_id="young",node="a"}': "_x15 8x5",
    'rankscope_step_latency_seconds_count{job_id="young",node="a"}': "_x15 0x5",
    'rankscope_job_ranks_alive{job_id="hangs",node="a"}': "8x20",
    'rankscope_step_latency_seconds_count{job_id="hangs",node="a"}': "0+9x5 45x15",
    'rankscope_job_ranks_alive{job_id="trains",node="a"}': "8x20",
    'rankscope_step_latency_seconds_count{job_id="trains",node="a"}': "0+9x20",
    'rankscope_job_ranks_alive{job_id="ended",node="a"}': "8x15 0x5",
    'rankscope_step_latency_seconds_count{job_id="ended",node="a"}': "0+9x15 135x5",
    'rankscope_build_info{node="a"}': "1x20",
}


def test_a_job_that_starts_is_not_stalled(gives):
    gives(expression("on-call", "Stalled jobs"), JOBS, {"{}": 1})
    gives(expression("executive", "Jobs training now"), JOBS, {"{}": 3})


def test_states_tell_jobs_that_start_from_jobs_that_hang(gives):
    states = {"young": 3, "hangs": 1, "trains": 2, "ended": 0}
    expected = {f'{{job_id="{job}"}}': value for job, value in states.items()}
    gives(expression("on-call", "State of jobs"), JOBS, expected)
    (mapping,) = panel("on-call", "State of jobs")["fieldConfig"]["defaults"]["mappings"]
    said = {job: mapping["options"][str(value)]["text"] for job, value in states.items()}
    assert said == {
        "young": "starting",
        "hangs": "makes no steps",
        "trains": "training",
        "ended": "ended",
    }


def test_jobs_with_long_steps_have_an_hour_until_they_are_stalled(gives):
    latency, alive = "rankscope_step_latency_seconds", "rankscope_job_ranks_alive"
    series = {'rankscope_build_info{node="a"}': "1x100"}
    # Steps of a quarter of an hour: one ended 14 minutes ago, or none for 80 minutes.
    for job, steps in (("slow", "4x86 5x14"), ("hangs", "4x20 5x80")):
        labels = f'{{job_id="{job}",node="a"}}'
        seconds = " ".join(
            f"{900 * int(part.split('x')[0])}x{part.split('x')[1]}" for part in steps.split()
        )
        series |= {
            f"{alive}{labels}": "8x100",
            f"{latency}_count{labels}": steps,
            f"{latency}_sum{labels}": seconds,
        }
    gives(expression("on-call", "Stalled jobs"), series, {"{}": 1}, at="100m")
    expected = {'{job_id="slow"}': 2.0, '{job_id="hangs"}': 1.0}
    gives(expression("on-call", "State of jobs"), series, expected, at="100m")


def test_without_jobs_none_trains_and_none_is_stalled(gives):
    series = {'rankscope_build_info{node="a"}': "1x20"}
    gives(expression("on-call", "Stalled jobs"), series, {"{}": 0})
    gives(expression("executive", "Jobs training now"), series, {"{}": 0})


def test_a_rank_that_moved_to_another_node_is_not_lost(gives):
    alive = "rankscope_rank_alive"
    series = {
        f'{alive}{{job_id="moved",rank="0",node="a"}}': "0x20",
        f'{alive}{{job_id="moved",rank="0",node="b"}}': "1x20",
        f'{alive}{{job_id="moved",rank="1",node="b"}}': "1x20",
        f'{alive}{{job_id="lost",rank="0",node="a"}}': "0x20",
        f'{alive}{{job_id="lost",rank="1",node="b"}}': "1x20",
    }
    gives(
        expression("on-call", "Jobs that lost ranks"), series, {'{clusters="All",job_id="lost"}': 1}
    )
    ended = expression("debug", "Ranks not running")
    gives(ended, series, {"{}": 0}, job_id="moved")
    held = {'rankscope_rank_stopped{job_id="moved",rank="1",node="b"}': "1x20"}
    gives(ended, series | held, {"{}": 1}, job_id="moved")
    gives(expression("debug", "Ranks alive"), series, {"{}": 2}, job_id="moved")


def test_alerts_of_two_clusters_are_two(gives):
    firing = 'alertname="RankscopeGpuLost",alertstate="firing",severity="ticket",node="a"'
    series = {f'ALERTS{{{firing},cluster="{cluster}"}}': "1x20" for cluster in ("east", "west")}
    row = 'alertname="RankscopeGpuLost",severity="ticket",node="a"'
    expected = {
        f'{{cluster="{cluster}",clusters="{cluster}",{row}}}': 1.0 for cluster in ("east", "west")
    }
    gives(expression("on-call", "Alerts that fire"), series, expected)


def of_rank(rank: int, node: str = "a") -> str:
    return f'job_id="t/j",rank="{rank}",node="{node}"'


def ranks(seconds: Mapping[int, float]) -> dict[str, str]:
    """Return series of ranks that make a step a minute and need that long themselves."""
    series: dict[str, str] = {}
    for rank, own in seconds.items():
        labels = of_rank(rank)
        series |= {
            f"rankscope_steps_total{{{labels}}}": "0+1x20",
            f"rankscope_data_seconds_total{{{labels}}}": "0+1x20",
            f"rankscope_compute_seconds_total{{{labels}}}": f"0+{own - 1}x20",
            f'rankscope_rank_info{{{labels},pp_stage="0",uuid="GPU-{rank}"}}': "1x20",
            f"rankscope_rank_alive{{{labels}}}": "1x20",
        }
    return series


def test_one_chosen_rank_is_still_compared_with_all(gives):
    over = expression("debug", "Time over the median of the stage")
    expected = {'{job_id="t/j",pp_stage="0",rank="3"}': 0.5}
    gives(over, ranks({0: 4, 1: 4, 2: 4, 3: 6}), expected, rank="3")


def test_rails_are_those_of_the_chosen_ranks(gives):
    series = ranks({0: 4, 1: 4})
    for number in range(4):
        adapter = f'node="a",uuid="GPU-{number}",device="mlx5_{number}",distance="PIX"'
        port = f'node="a",device="mlx5_{number}",port="1"'
        series |= {
            f"rankscope_gpu_info{{{gpu(number)}}}": "1x20",
            f"rankscope_gpu_nic_info{{{adapter}}}": "1x20",
            f'rankscope_rdma_port_errors_total{{{port},type="symbol_error"}}': "0+6x20",
        }
    errors = expression("debug", "RDMA errors of the rails")
    row = 'node="a",port="1",type="symbol_error"'
    both = {f'{{device="mlx5_{number}",{row}}}': 60.0 for number in range(2)}
    gives(errors, series, both)
    gives(errors, series, {f'{{device="mlx5_1",{row}}}': 60}, rank="1")
    gives(errors, series, {}, node="b")


def test_warnings_are_those_of_the_chosen_jobs_pods(gives):
    place = 'pod_namespace="t",node="a"'
    series = {
        f'rankscope_rank_info{{job_id="t/j",rank="0",pod_name="j-0",{place}}}': "1x20",
        f'rankscope_rank_info{{job_id="t/k",rank="0",pod_name="k-0",{place}}}': "1x20",
    }
    for pod in ("j-0", "k-0"):
        labels = f'pod_name="{pod}",code="CUDA_FAILURE",{place}'
        series[f"rankscope_nccl_warnings_total{{{labels}}}"] = "0+1x20"
    expected = {'{node="a",pod_name="j-0",code="CUDA_FAILURE"}': 10}
    gives(expression("debug", "NCCL warnings"), series, expected, job_id="t/j")


def test_a_job_counts_once_however_many_of_its_pods_print_a_loss(gives):
    series = {'rankscope_job_log_loss{pod_namespace="t",pod_name="alone",node="a"}': "9-0.1x20"}
    for pod, values in (
        ("j-0", "9-0.1x20"),
        ("j-1", "9-0.1x20"),
        ("k-0", "1+1x20"),
        ("m-0", "1+1x20"),
    ):
        place = f'pod_namespace="t",pod_name="{pod}",node="a"'
        series[f"rankscope_job_log_loss{{{place}}}"] = values
        series[f'rankscope_pod_job_info{{job_id="t/{pod[0]}",{place}}}'] = "1x20"
    odd = 'rankscope_job_log_nonfinite_losses_total{pod_namespace="t",pod_name="j-1",node="a"}'
    converging = expression("executive", "Jobs converging")
    gives(converging, series, {"{}": 0.5})
    gives(converging, series | {odd: "0+1x20"}, {"{}": 0.25})


@pytest.mark.parametrize("view", ["on-call", "debug"])
def test_a_restart_is_marked_once_however_seldom_it_is_scraped(gives, view):
    (mark,) = [one for one in MODELS[view]["annotations"]["list"] if one["name"] == "Restarts"]
    pod = 'namespace="t",pod="j-0"'
    restarts = f"kube_pod_container_status_restarts_total{{{pod}}}"
    series = {
        'rankscope_gpu_allocation_info{job_id="t/j",pod_namespace="t",pod_name="j-0"}': "1x20"
    }
    found = {f"{{{pod}}}": 20 * 60_000.0}
    gives(mark["expr"], series | {restarts: "0x19 1"}, found)
    gives(mark["expr"], series | {restarts: "0x18 1 1"}, {})
    # Every second minute only, as a server with a long interval scrapes.
    gives(mark["expr"], series | {restarts: "0 " + "_ 0 " * 9 + "_ 1"}, found)
    gives(mark["expr"], series | {restarts: "0 " + "_ 0 " * 8 + "_ 1 _ _"}, {})


def test_host_pressure_is_never_more_than_all_of_the_time(gives):
    series = {'rankscope_rank_info{job_id="t/j",rank="0",node="a"}': "1x20"}
    pressure = 'rankscope_host_pressure_seconds_total{node="a",resource="cpu",kind="some"}'
    gives(
        expression("debug", "Host pressure"),
        series | {pressure: "0+63x20"},
        {'{resource="cpu"}': 1},
    )


def test_nodes_that_were_away_are_named_with_how_they_are_now(gives):
    ready = 'kube_node_status_condition{node="%s",condition="Ready",status="true"}'
    series = {ready % "well": "1x20", ready % "back": "1x15 0x1 1x3", ready % "gone": "1x10 0x10"}
    title = "Nodes that were not ready"
    away = {'{node="back"}': 0.25, '{node="gone"}': 1.0}
    gives(expression("on-call", title), series, away, __range="7m")
    now = {'{node="back"}': 1.0, '{node="gone"}': 0.0}
    gives(expression("on-call", title, 1), series, now, __range="7m")


def test_xids_of_the_kernel_log_are_marked_and_only_on_the_jobs_nodes(gives):
    marks = {
        view: one["expr"]
        for view in ("on-call", "debug")
        for one in MODELS[view]["annotations"]["list"]
        if one["name"] == "Xids"
    }
    series = {'rankscope_rank_info{job_id="t/j",rank="0",node="a"}': "1x20"}
    for node in ("a", "b"):
        logged = f'node="{node}",gpu="1",uuid="GPU-1",xid="79",action="reset_gpu"'
        series[f"rankscope_gpu_xid_last_timestamp_seconds{{{logged}}}"] = "60x20"
    series['rankscope_gpu_xid_last_event_timestamp_seconds{node="a",gpu="2",xid="13"}'] = "90x20"
    of_a = {'{node="a",gpu="1",xid="79"}': 60_000.0, '{node="a",gpu="2",xid="13"}': 90_000.0}
    gives(marks["on-call"], series, of_a | {'{node="b",gpu="1",xid="79"}': 60_000})
    gives(marks["debug"], series, of_a, job_id="t/j")


ENDS = "rankscope_job_completions_total"


def ends(outcome, values, cause="", namespace="team", more=""):
    labels = f'cluster="c",job_namespace="{namespace}",job_class="prod",outcome="{outcome}"'
    return {f'{ENDS}{{{labels},cause="{cause}"{more}}}': values}


def success_7d():
    """Return the rule with a window that a test can wait for."""
    groups = {group.name: group for group in recording_rules.GROUPS}
    record = groups["rankscope-job-ends"].records[0]
    assert record.name == recording_rules.success("7d")
    return record.expression.replace("7d", "2h")


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        # What had ended before the window does not count.
        (ends("succeeded", "10x60 11x60 13x60") | ends("failed", "7x60 7x60 8x60"), 0.75),
        # A first end that is born as 1 counts, and each cause by itself.
        (ends("succeeded", "0x60 0x60 3x60") | ends("failed", "_x120 1x60", "oom"), 0.75),
        # Cancelled jobs and those that nobody observed are neither good nor bad.
        (ends("succeeded", "0x60 1x120") | ends("cancelled", "0x60 9x120"), 1.0),
        # Two watches that tell the same count once.
        (
            ends("succeeded", "0x60 1x120", more=',instance="a"')
            | ends("succeeded", "0x60 1x120", more=',instance="b"')
            | ends("failed", "0x60 1x120"),
            0.5,
        ),
        # The watch was away at the moment with which it is compared.
        (ends("succeeded", "10x55 _x20 11x105") | ends("failed", "0x60 1x120"), 0.5),
    ],
)
def test_the_share_of_jobs_that_succeed_is_that_of_the_window(gives, series, expected):
    gives(success_7d(), series, {'{cluster="c", job_class="prod"}': expected}, at="179m")


def test_the_time_to_complete_is_that_of_the_time_range(gives):
    def buckets(*values):
        keys = 'cluster="c",job_class="prod",le='
        bounds = ("60.0", "600.0", "+Inf")
        name = "rankscope_job_duration_seconds_bucket"
        return {f'{name}{{{keys}"{b}"}}': v for b, v in zip(bounds, values, strict=True)}

    before_and_after = buckets("100x100", "100x60 101x40", "100x60 101x40")
    query = expression("executive", "Time to complete")
    gives(query, before_and_after, {'{job_class="prod"}': 330.0}, at="65m")


def test_mfu_is_of_the_jobs_whose_gpus_are_known_and_long_ones_count_more(gives):
    def job(name, flops, peak):
        labels = f'cluster="c",job_id="{name}"'
        found = {f'rankscope_job_model_flops_per_second{{{labels},flops_by="program"}}': flops}
        if peak:
            found[f'rankscope_job_peak_flops_per_second{{{labels},dtype="bf16"}}'] = peak
        return found

    series = job("a", "40x20", "100x20") | job("b", "_x18 100x2", "_x18 200x2")
    series |= job("unknown", "1000x20", "")
    query = expression("executive", "MFU")
    gives(query, series, {"{}": (40 * 10 + 100 * 2) / (100 * 10 + 200 * 2)}, at="19m30s")
    gives(expression("executive", "MFU of all jobs"), series, {"{}": 140 / 300}, at="19m30s")


def test_a_million_tokens_cost_what_a_project_spent_while_they_were_made(gives):
    def counters(name, step, **labels):
        keys = ",".join(f'{key}="{value}"' for key, value in labels.items())
        return {f'rankscope_project_{name}_total{{cluster="c",job_class="x",{keys}}}': step}

    series = counters("cost", "0+2x20", project="llm", part="productive", currency="EUR")
    series |= counters("cost", "0+1x20", project="llm", part="hang", currency="EUR")
    series |= counters("cost", "0+1x20", project="other", part="hang", currency="EUR")
    series |= counters("tokens", "0+600000x20", project="llm")
    series |= counters("tokens", "5x20", project="other")
    query = expression("executive", "Cost of a million tokens")
    gives(query, series, {'{project="llm", currency="EUR"}': 5.0})


def test_an_allocated_gpu_is_idle_if_no_kernel_ran_on_it_for_an_hour(gives):
    def held(number):
        return {f'rankscope_gpu_allocation_info{{cluster="c",{gpu(number)},pod_name="p"}}': "1x90"}

    def busy(number, values):
        return {f'rankscope_gpu_utilization_ratio{{cluster="c",{gpu(number)}}}': values}

    series = held(0) | busy(0, "0x90") | held(1) | busy(1, "0x40 0.5 0x50")
    series |= held(2) | busy(2, "_x70 0x20") | busy(3, "0x90") | held(4)
    gives(expression("executive", "Allocated GPUs that are idle"), series, {"{}": 1}, at="80m")


def test_a_day_of_spending_is_compared_with_days_of_the_week_before(gives):
    def cost(project, part, values):
        labels = f'cluster="c",job_class="x",project="{project}",part="{part}",currency="EUR"'
        return {f"rankscope_project_cost_total{{{labels}}}": values}

    # 8 minutes stand for 8 days.
    query = expression("executive", "Spent in 24 hours, against the week before")
    query = query.replace("[1d]", "[2m]").replace("[7d] offset 1d", "[14m] offset 2m")
    series = cost("a", "productive", "0+10x14 170 200x6") | cost("b", "hang", "0+10x20")
    series |= cost("new", "hang", "_x15 0+10x5")
    gives(query, series, {'{project="a"}': 3.0, '{project="b"}': 1.0}, at="16m")


def test_the_trend_of_success_is_of_the_week_before_each_point(gives):
    query = expression("executive", "Jobs that succeed, week by week").replace("7d", "2h")
    series = ends("succeeded", "10x60 11x60 13x60") | ends("failed", "7x60 7x60 8x60")
    gives(query, series, {"{}": 0.75}, at="179m")


@pytest.mark.parametrize("view", MODELS)
def test_a_command_that_a_panel_names_is_explained_in_a_runbook_it_links_to(view):
    runbooks = Path(__file__).parent.parent / "docs" / "runbooks"
    for one in panels_of(MODELS[view]):
        linked = "".join(
            (runbooks / link["url"].rpartition("/")[2]).read_text() for link in one["links"]
        )
        for command in re.findall(r"rankscope (?:explain [\w-]+|xids)", one["description"]):
            assert command in linked, f"{one['title']}: {command}"


def test_numbers_of_jobs_of_one_name_are_those_of_each_cluster(gives):
    series = {
        f'rankscope_rank_alive{{{of_rank(rank)},cluster="{cluster}"}}': "1x20"
        for cluster, ranks in (("east", 4), ("west", 2))
        for rank in range(ranks)
    }
    expected = {'{cluster="east"}': 4.0, '{cluster="west"}': 2.0}
    gives(expression("debug", "Ranks alive"), series, expected)
    for one in panels_of(MODELS["debug"]):
        if one["type"] == "stat" and one["gridPos"]["y"] < 5:
            assert one["targets"][0]["legendFormat"] == "{{cluster}}", one["title"]


@pytest.mark.parametrize("view", MODELS)
def test_rows_of_several_clusters_can_be_told_apart(view):
    for one in panels_of(MODELS[view]):
        kept = [
            step["options"]["include"]["names"]
            for step in one["transformations"]
            if step["id"] == "filterFieldsByName"
        ]
        if any("node" in names or "job_id" in names for names in kept):
            assert "cluster" in kept[0], one["title"]


@pytest.mark.parametrize(
    ("beside", "parts"),
    [
        ((30, None, None), (0.5, None, None, 0.25)),
        ((None, None, None), (None, None, None, 0.75)),
        ((15, 15, 7.5), (0.25, 0.25, 0.125, 0.125)),
    ],
)
def test_the_time_of_what_is_beside_steps_is_no_other_time_of_a_step(gives, beside, parts):
    rank = 'job_id="t/j",rank="0",node="a"'
    saving, evaluation, compiling = beside
    counted = {
        f"rankscope_steps_total{{{rank}}}": 60,
        f"rankscope_other_seconds_total{{{rank}}}": 45,
        f"rankscope_checkpoint_blocked_seconds_total{{{rank}}}": saving,
        f'rankscope_span_blocked_seconds_total{{{rank},kind="evaluation"}}': evaluation,
        f'rankscope_span_blocked_seconds_total{{{rank},kind="compile"}}': compiling,
    }
    series = {name: f"0+{each}x20" for name, each in counted.items() if each is not None}
    for query, value in zip((3, 4, 5, 6), parts, strict=True):
        asked = expression("debug", "Where a step goes", query)
        gives(asked, series, {} if value is None else {"{}": value})


def test_where_losses_ceased_to_be_numbers_is_listed_with_the_files_that_were_read(gives):
    rank = 'job_id="t/j",rank="{}",node="a"'
    series = {}
    for one, (step, files) in enumerate(((41, 2), (40, 1), (41, 0))):
        labels = rank.format(one)
        series[f"rankscope_nonfinite_loss_step{{{labels}}}"] = f"{step}x20"
        series[f"rankscope_nonfinite_loss_shards{{{labels}}}"] = f"{files}x20"
    name = f'rankscope_nonfinite_loss_shard_name_checksum{{{rank.format(1)},position="1"}}'
    series[name] = "3735928559x20"
    title = "First losses that were infinite or NaN"
    ranks = ['{rank="0"}', '{rank="1"}', '{rank="2"}']
    gives(expression("checkpoints", title, 0), series, dict(zip(ranks, (41, 40, 41), strict=True)))
    gives(expression("checkpoints", title, 1), series, dict(zip(ranks, (2, 1, 0), strict=True)))
    gives(
        expression("checkpoints", "Files read there", 0),
        series,
        {'{rank="1",position="1"}': 3735928559},
    )
