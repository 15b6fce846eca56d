"""Which ranks share a layer or a pipeline, as the probe learns it from process groups."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import rankscope_probe
from probe_jobs.nurseries import Nursery
from probe_jobs.running import read_rings

UNKNOWN = (0, 0, 0)


@pytest.mark.parametrize(
    ("tp", "dp", "pp"), [(1, 4, 1), (2, 3, 1), (1, 2, 4), (2, 3, 4), (8, 1, 2)]
)
def test_a_tensor_data_pipeline_grid_is_numbered_as_the_trace_contract_does(
    tp: int, dp: int, pp: int
) -> None:
    for stage in range(pp):
        for d in range(dp):
            for t in range(tp):
                rank = (stage * dp + d) * tp + t
                tensor = [(stage * dp + d) * tp + other for other in range(tp)]
                pipeline = [(other * dp + d) * tp + t for other in range(pp)]
                found = rankscope_probe._layout(rank, tp * dp * pp, tensor, pipeline)
                assert found == (stage * tp + t + 1, stage * dp + d + 1, stage + 1)


def test_a_grid_of_another_order_has_the_same_groups() -> None:
    # Order tp, pp, dp, as torchtitan's meshes can have it: rank = (d * PP + p) * TP + t.
    tp, dp, pp = 2, 3, 2
    layouts = {}
    for d in range(dp):
        for p in range(pp):
            for t in range(tp):
                rank = (d * pp + p) * tp + t
                tensor = [(d * pp + p) * tp + other for other in range(tp)]
                pipeline = [(d * pp + other) * tp + t for other in range(pp)]
                layouts[d, p, t] = rankscope_probe._layout(rank, 12, tensor, pipeline)
    for (d, p, t), found in layouts.items():
        assert found == (p * tp + t + 1, p * dp + d + 1, p + 1)


def test_groups_known_in_part_leave_the_rest_data_parallel() -> None:
    assert rankscope_probe._layout(5, 8, [4, 5], []) == (2, 3, 1)
    assert rankscope_probe._layout(5, 8, [], [1, 5]) == (2, 6, 2)


@pytest.mark.parametrize(
    ("rank", "tensor", "pipeline"),
    [
        (0, [0, 1, 3], []),
        (1, [1, 2], []),
        (4, [4, 5], [4, 5]),
        (5, [3, 4, 5], []),
        (5, [0, 1], []),
    ],
)
def test_groups_that_make_no_grid_are_unknown(
    rank: int, tensor: list[int], pipeline: list[int]
) -> None:
    assert rankscope_probe._layout(rank, 8, tensor, pipeline) == UNKNOWN


class Group:
    def __init__(self, group_desc: str) -> None:
        self.group_desc = group_desc


@pytest.mark.parametrize(
    ("groups", "layout"),
    [
        ({"TENSOR_MODEL_PARALLEL_GROUP": [2, 3], "PIPELINE_MODEL_PARALLEL_GROUP": [3]}, (2, 2, 1)),
        ({"mesh_dp": [1, 3], "mesh_tp": [2, 3]}, (2, 2, 1)),
        ({"mesh_pipeline_parallel": [1, 3]}, (2, 4, 2)),
        ({"default_pg": [0, 1, 2, 3], "mesh_dp_shard": [1, 3], "undefined": [2, 3]}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_groups_are_known_by_what_frameworks_call_them(
    groups: dict[str, list[int]], layout: tuple[int, int, int]
) -> None:
    ranked = {
        Group(description): {rank: index for index, rank in enumerate(ranks)}
        for description, ranks in groups.items()
    }
    world = SimpleNamespace(_world=SimpleNamespace(pg_group_ranks=ranked))
    distributed = SimpleNamespace(
        distributed_c10d=world, get_rank=lambda: 3, get_world_size=lambda: 4
    )
    probe = SimpleNamespace(
        distributed=distributed, mesh=None, layout=UNKNOWN, spread_layout=lambda replicas: None
    )
    rankscope_probe._Probe.find_layout(probe)
    assert probe.layout == layout


GRID = {"slice_parallel": [3], "pipe_parallel": [1, 3], "model_parallel": [1, 3]}
"""Of DeepSpeed's PipelineModule, whose model-parallel group is all of a replica."""

MEGATRON = {"tensor_model_parallel": [2, 3], "model_parallel": [2, 3]}
"""Of a program that passes `mpu`: tensor-parallel, without a pipeline."""


@pytest.mark.parametrize(
    ("parallel", "layout"),
    [(GRID, (2, 4, 2)), (MEGATRON, (2, 2, 1)), ({"model_parallel": [2, 3]}, (2, 2, 1))],
)
def test_groups_of_deepspeed_are_known_although_they_are_not_described(
    parallel: dict[str, list[int]], layout: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    getters = {f"get_{name}_group": lambda ranks=ranks: ranks for name, ranks in parallel.items()}
    known = SimpleNamespace(mpu=SimpleNamespace(**getters))
    monkeypatch.setitem(sys.modules, "deepspeed.utils.groups", known)
    distributed = SimpleNamespace(
        distributed_c10d=None,
        get_rank=lambda: 3,
        get_world_size=lambda: 4,
        get_process_group_ranks=lambda group: group,
    )
    probe = SimpleNamespace(
        distributed=distributed, mesh=None, layout=UNKNOWN, spread_layout=lambda replicas: None
    )
    rankscope_probe._Probe.find_layout(probe)
    assert probe.layout == layout


def test_the_stages_of_a_pipeline_are_known_without_a_device_mesh(
    nursery: Nursery, tmp_path: Path
) -> None:
    ended = nursery.run(tmp_path, "distributed.py", "pipelined", ranks=4)
    assert [(one.code, one.errors) for one in ended] == [(0, "")] * 4
    assert [ring.layout for ring in read_rings(tmp_path)] == [(n, n, n) for n in (1, 2, 3, 4)]


def test_a_device_mesh_of_stages_and_tensor_ranks_is_in_the_rings(
    nursery: Nursery, tmp_path: Path
) -> None:
    ended = nursery.run(tmp_path, "distributed.py", "stages", ranks=4)
    assert [(one.code, one.errors) for one in ended] == [(0, "")] * 4
    assert [ring.layout for ring in read_rings(tmp_path)] == [
        (1, 1, 1),
        (2, 1, 1),
        (3, 2, 2),
        (4, 2, 2),
    ]


def test_a_mesh_over_all_ranks_is_known_from_the_parameters(
    nursery: Nursery, tmp_path: Path
) -> None:
    ended = nursery.run(tmp_path, "distributed.py", "tensor", ranks=2)
    assert [(one.code, one.errors) for one in ended] == [(0, "")] * 2
    assert [ring.layout for ring in read_rings(tmp_path)] == [(1, 1, 1), (2, 1, 1)]
