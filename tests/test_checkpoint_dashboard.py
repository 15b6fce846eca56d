"""What the dashboard of checkpoints and learning shows of series where that can go wrong."""

from __future__ import annotations

import pytest

from panel_queries import expression, gives

__all__ = ["gives"]

JOB = 'job_id="t/j",node="a"'


def of_rank(metric: str, rank: int = 0) -> str:
    return f'{metric}{{{JOB},rank="{rank}"}}'


def test_steps_that_would_be_lost_are_those_since_the_newest_checkpoint_of_any_rank(gives):
    series = {
        of_rank("rankscope_last_step", 0): "0+10x20",
        of_rank("rankscope_last_step", 1): "0+10x20",
        of_rank("rankscope_checkpoint_last_success_step", 0): "150x20",
        of_rank("rankscope_checkpoint_last_success_step", 1): "100x20",
    }
    gives(expression("checkpoints", "Steps at risk"), series, {"{}": 50})


def test_a_store_that_grows_emptier_is_full_at_its_pace_and_one_that_does_not_never(gives):
    free = of_rank("rankscope_checkpoint_store_free_bytes")
    full = expression("checkpoints", "Full in")
    gives(full, {free: "10000-60x20"}, {"{}": (10000 - 20 * 60) / 1})
    gives(full, {free: "10000x20"}, {})


@pytest.mark.parametrize(("nodes", "shown"), [("a", {"a"}), ("ab", {"a", "b"})])
def test_operations_are_those_of_the_jobs_nodes(gives, nodes, shown):
    series = {}
    for node, seconds in (("a", 6), ("b", 3), ("c", 60)):
        client = f'{{node="{node}",type="lustre",filesystem="s",operation="read"}}'
        series[f"rankscope_storage_client_operations_total{client}"] = "0+60x20"
        series[f"rankscope_storage_client_operation_seconds_total{client}"] = f"0+{seconds}x20"
    series |= {
        f'rankscope_rank_info{{job_id="t/j",rank="{node}",node="{node}"}}': "1x20" for node in nodes
    }
    title = "Duration of an operation on a file system"
    means = {"a": 0.1, "b": 0.05}
    expected = {
        f'{{node="{node}",type="lustre",filesystem="s",operation="read"}}': means[node]
        for node in shown
    }
    gives(expression("checkpoints", title), series, expected)


def nfs(node: str, pod: str, operation: str, requests: int, seconds: int, again: int) -> dict:
    key = f'{{node="{node}",pod_uid="{pod}",operation="{operation}"}}'
    counted = {"operations": requests, "round_trip_seconds": seconds, "retransmissions": again}
    return {
        f"rankscope_nfs_{name}_total{key}": f"0+{each}x20"
        for name, each in {**counted, "timeouts": again // 2}.items()
    }


ON_NODE_A = {'rankscope_rank_info{job_id="t/j",rank="0",node="a"}': "1x20"}


def test_an_nfs_request_takes_what_it_takes_however_many_pods_tell_of_its_mount(gives):
    series = {
        **nfs("a", "", "read", 600, 6, 0),
        **nfs("a", "pod", "read", 600, 6, 0),  # one export, one counter
        **nfs("a", "pod", "write", 60, 30, 0),
        **nfs("b", "", "read", 60, 60, 0),  # no node of the job's
    }
    expected = {'{node="a",operation="read"}': 0.01, '{node="a",operation="write"}': 0.5}
    title = "Round trip of an NFS request"
    gives(expression("checkpoints", title), {**series, **ON_NODE_A}, expected)


def test_nfs_requests_without_an_answer_are_those_of_the_worst_operation(gives):
    series = {**nfs("a", "", "read", 600, 6, 6), **nfs("a", "", "write", 60, 6, 120)}
    series = {**series, **nfs("b", "", "read", 60, 6, 600), **ON_NODE_A}
    title = "NFS requests without an answer"
    gives(expression("checkpoints", title, 0), series, {"{}": 2.0})
    gives(expression("checkpoints", title, 1), series, {"{}": 1.0})


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
