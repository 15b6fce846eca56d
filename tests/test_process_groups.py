import pytest

import rankscope_probe
from rankscope_analyzers.steps.process_groups import Layout, layout


def config(**groups):
    return [{"pg_name": "1", "pg_desc": name, "ranks": ranks} for name, ranks in groups.items()]


@pytest.mark.parametrize(
    ("tp", "dp", "pp"), [(1, 4, 1), (2, 3, 1), (1, 2, 4), (2, 3, 4), (8, 1, 2)]
)
def test_a_grid_is_numbered_as_the_trace_contract_and_the_probe_do(tp, dp, pp):
    for stage in range(pp):
        for d in range(dp):
            for t in range(tp):
                rank = (stage * dp + d) * tp + t
                tensor = [(stage * dp + d) * tp + other for other in range(tp)]
                pipeline = [(other * dp + d) * tp + t for other in range(pp)]
                world = tp * dp * pp
                found = layout(rank, world, config(mesh_tp=tensor, mesh_pp=pipeline))
                assert found == (stage * tp + t, stage * dp + d, stage)
                of_probe = rankscope_probe._layout(rank, world, tensor, pipeline)
                assert tuple(place - 1 for place in of_probe) == found


def test_frameworks_call_the_groups_alike():
    assert layout(5, 8, config(TENSOR_MODEL_PARALLEL_GROUP=[4, 5])) == Layout(1, 2, 0)
    assert layout(5, 8, config(mesh_pipeline_parallel=[5, 1])) == Layout(1, 5, 1)


def test_names_are_those_of_the_probe():
    from rankscope_analyzers.steps import process_groups

    assert process_groups.TENSOR_GROUPS == rankscope_probe._TENSOR_GROUPS
    assert process_groups.PIPELINE_GROUPS == rankscope_probe._PIPELINE_GROUPS


@pytest.mark.parametrize(
    "groups",
    [
        None,
        "mesh_tp",
        {"mesh_tp": [4, 5]},
        [],
        [None, 3, {}],
        [{"pg_desc": "mesh_tp"}],
        [{"pg_desc": "mesh_tp", "ranks": "[4, 5]"}],
        [{"pg_desc": "mesh_tp", "ranks": [4, "5"]}],
        [{"pg_desc": ["mesh_tp"], "ranks": [4, 5]}],
        config(mesh_dp=[1, 5], default_pg=[*range(8)]),
        config(mesh_tp=[3, 5, 6]),
        config(mesh_tp=[5, 5]),
        config(mesh_tp=[5, 1 << 62]),
        config(mesh_tp=[-(1 << 62), 5]),
        config(mesh_tp=[0, 1]),
        config(mesh_tp=[4, 5], mesh_pp=[4, 5]),
    ],
)
def test_groups_that_tell_no_grid_leave_the_place_unknown(groups):
    assert layout(5, 8, groups) is None
