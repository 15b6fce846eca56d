"""What panels of jobs and their ranks show of series where that can go wrong."""

from __future__ import annotations

import pytest

from panel_queries import MODELS, expression, gives, panel, ranks

__all__ = ["gives"]

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


def test_one_chosen_rank_is_still_compared_with_all(gives):
    over = expression("debug", "Time over the median of the stage")
    expected = {'{job_id="t/j",pp_stage="0",rank="3"}': 0.5}
    gives(over, ranks({0: 4, 1: 4, 2: 4, 3: 6}), expected, rank="3")


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
