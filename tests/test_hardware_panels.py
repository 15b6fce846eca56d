"""What panels of GPUs, ports, hosts and nodes show of series where that can go wrong."""

from __future__ import annotations

from panel_queries import MODELS, expression, gives, gpu, ranks

__all__ = ["gives"]


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


def test_an_allocated_gpu_is_idle_if_no_kernel_ran_on_it_for_an_hour(gives):
    def held(number):
        return {f'rankscope_gpu_allocation_info{{cluster="c",{gpu(number)},pod_name="p"}}': "1x90"}

    def busy(number, values):
        return {f'rankscope_gpu_utilization_ratio{{cluster="c",{gpu(number)}}}': values}

    series = held(0) | busy(0, "0x90") | held(1) | busy(1, "0x40 0.5 0x50")
    series |= held(2) | busy(2, "_x70 0x20") | busy(3, "0x90") | held(4)
    gives(expression("executive", "Allocated GPUs that are idle"), series, {"{}": 1}, at="80m")
