"""What metadata say about a job, and when they are refused."""

import pytest

from rankscope_analyzers.steps.layout import layout
from rankscope_analyzers.steps.records import RecordError

META = {"world_size": 8, "tensor_parallel": 2, "pipeline_parallel": 2, "compute_timing": "kernel"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"world_size": 10}, "world_size 10 is not a multiple of pipeline_parallel 2 x"),
        ({"data_parallel": 4}, "world_size 8 is not data_parallel 4 x pipeline_parallel 2 x"),
        ({"world_size": 2**40}, "world_size is 1099511627776, expected at most"),
        ({"tensor_parallel": 0}, "tensor_parallel is 0, expected a whole number"),
        ({"microbatches": "8"}, "microbatches is '8', expected a whole number"),
        ({"microbatches": True}, "microbatches is True, expected a whole number"),
        ({"compute_timing": "cpu"}, "compute_timing is 'cpu', expected wall or kernel"),
        ({"compute_timing": ["wall"]}, r"compute_timing is \['wall'\], expected wall or kernel"),
        ({"rank_order": "dp,tp"}, "rank_order is 'dp,tp', expected tp,dp,pp or tp,pp,dp or"),
    ],
)
def test_metadata_that_make_no_sense_are_named(changes, complaint):
    with pytest.raises(RecordError, match=rf"^meta\.json: {complaint}"):
        layout(META | changes, 8)


def test_without_metadata_the_job_is_data_parallel():
    known = layout({}, 6)
    assert (known.world, known.pipeline, known.tensor) == (6, 1, 1)
    assert known.wall  # the weaker claim: compute may hold what is not the GPU's


def test_in_another_order_of_ranks_their_groups_say_where_they_are():
    assert not layout(META, 8).by_groups
    assert layout(META | {"rank_order": "tp,pp,dp"}, 8).by_groups
    assert layout({}, 8).by_groups


def test_without_a_world_it_is_made_of_its_factors():
    assert layout({"data_parallel": 3, "tensor_parallel": 4}, 1).world == 12


@pytest.mark.parametrize("ranks", [1 << 20, (1 << 20) + 1])
def test_a_job_has_a_million_ranks_at_most(ranks):
    if ranks == 1 << 20:
        assert layout({"world_size": ranks}, 8).world == ranks
        return
    with pytest.raises(RecordError, match="world_size is 1048577, expected at most"):
        layout({"world_size": ranks}, 8)
