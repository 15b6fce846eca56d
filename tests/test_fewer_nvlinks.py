"""GPUs with fewer NVLinks up than others of their model, or none, and nobody saw them go down."""

from __future__ import annotations

import pytest

from faulty_series import GPU, NODES, ODD, PLACES, VIEW, Reading, gpu_labels, observed
from rankscope_agent.contract.metrics import gpus
from rankscope_analyzers.layers import gpu_health

MODEL = "NVIDIA H100 NVL"


def judged(up, *odd, model=MODEL):
    """Return the findings about GPUs with these numbers of links up, by rank."""
    links = [
        Reading(gpus.GPU_NVLINKS_UP, gpu_labels(rank), count, node=PLACES[rank].node)
        for rank, count in up.items()
    ]
    models = [
        Reading(gpus.GPU_INFO, {**gpu_labels(rank), "model": model}, 1, node=PLACES[rank].node)
        for rank in up
    ]
    return list(gpu_health.findings(observed(*links, *models, *odd), VIEW))


def test_the_two_ends_of_a_link_that_was_down_before_the_agent_began_are_named():
    found = judged({rank: 11 if rank in (4, ODD) else 12 for rank in range(8)})
    assert [(one.kind, one.severity, one.where.ranks) for one in found] == [
        ("nvlink_degraded", "ticket", (4,)),
        ("nvlink_degraded", "ticket", (ODD,)),
    ]
    assert found[1].summary == (
        f"GPU 1 of node {NODES[1]}, GPU-5: 11 NVLinks are up, 12 of most others of its model"
    )
    assert "bridge" in found[1].action


@pytest.mark.parametrize(
    ("few", "named"),
    [((4, 5), 2), ((4, 5, 6), 0), ((3, 4, 5, 6, 7), 0)],
)
def test_three_quarters_of_the_gpus_must_agree(few, named):
    assert len(judged({rank: 8 if rank in few else 12 for rank in range(8)})) == named


@pytest.mark.parametrize(("count", "named"), [(4, 0), (5, 1)])
def test_four_gpus_must_agree(count, named):
    assert len(judged({rank: 12 if rank else 8 for rank in range(count)})) == named


def test_more_links_than_most_are_no_fault_and_cards_without_bridges_tell_no_number():
    assert judged({rank: 12 if rank < 2 else 8 for rank in range(8)}) == []
    assert judged(dict.fromkeys(range(6), 12)) == []


def test_another_model_has_another_number():
    links = {rank: 18 if rank < 7 else 12 for rank in range(8)}
    other = Reading(gpus.GPU_INFO, {**gpu_labels(7), "model": "NVIDIA A30"}, 1)
    assert judged(links, other) == []
    assert len(judged(links)) == 1


def test_a_link_that_was_seen_to_go_down_is_told_once():
    down = Reading(gpus.GPU_NVLINK_LINK_UP, {**GPU, "link": "3"}, 0)
    (found,) = judged({rank: 11 if rank == ODD else 12 for rank in range(8)}, down)
    assert "NVLink 3 is down" in found.summary


BOARD = "NVIDIA H100 80GB HBM3"


def test_a_gpu_without_any_link_is_named_if_others_of_its_node_have_some():
    (found,) = judged({rank: 0 if rank == ODD else 18 for rank in range(8)}, model=BOARD)
    assert (found.kind, found.severity, found.where.ranks) == ("nvlink_degraded", "page", (ODD,))
    assert found.summary == (
        f"GPU 1 of node {NODES[1]}, GPU-5: none of its NVLinks is up, 18 of others of its model and"
        " node"
    )
    assert "nvidia-smi nvlink -s" in found.action


@pytest.mark.parametrize(
    ("without", "named"),
    [
        ((4,), (4,)),
        ((4, 5, 6), (4, 5, 6)),
        ((4, 5, 6, 7), ()),  # the fabric of the node is not started
        (range(8), ()),
    ],
)
def test_a_node_without_any_link_is_not_at_fault(without, named):
    found = judged({rank: 0 if rank in without else 18 for rank in range(8)}, model=BOARD)
    assert [one.where.ranks[0] for one in found] == [*named]


def test_a_gpu_of_another_model_is_no_measure_of_its_links():
    other = Reading(gpus.GPU_INFO, {**gpu_labels(7), "model": "NVIDIA H200"}, 1)
    links = {rank: 18 if rank == 7 else 0 for rank in range(4, 8)}
    assert judged(links, other, model=BOARD) == []
    assert len(judged(links, model=BOARD)) == 3


def test_a_gpu_without_links_that_no_rank_holds_is_another_jobs():
    links = {rank: 0 if rank == ODD else 18 for rank in range(4, 8)}
    away = {**gpu_labels(ODD), "gpu": "9", "uuid": "GPU-9"}
    (found,) = judged(links, Reading(gpus.GPU_NVLINKS_UP, away, 0), model=BOARD)
    assert found.where.ranks == (ODD,)


def test_links_that_were_seen_to_go_down_are_told_once_though_none_is_left():
    down = Reading(gpus.GPU_NVLINK_LINK_UP, {**GPU, "link": "3"}, 0)
    (found,) = judged({rank: 0 if rank == ODD else 18 for rank in range(8)}, down, model=BOARD)
    assert "NVLink 3 is down" in found.summary
