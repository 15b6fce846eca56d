"""When compute that is measured as wall time is taken to hold waits for peers."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.rows import Rows
from rankscope_analyzers.stragglers.arrangement import shape_of_run, steps_of
from rankscope_analyzers.stragglers.shape import Shape

STEPS = 40
SIGNS, SLOWER_SIGNS = (np.where(np.arange(STEPS) // n % 2, 1.0, -1.0) for n in (1, 2))


def holds_waits(compute: np.ndarray) -> bool:
    """Return what is concluded from compute of (steps, stages, replicas, tensor ranks)."""
    sizes = compute.shape[1:]
    ranks = np.arange(np.prod(sizes))
    step, rank = (values.ravel() for values in np.meshgrid(np.arange(STEPS), ranks, indexing="ij"))
    floats = {"compute_seconds": compute.ravel(), "step_seconds": np.full(step.size, 2.0)}
    rows = Rows(np.arange(step.size), step, rank, rank * 0, step * 2.0, floats, {})
    job = Layout(len(ranks), sizes[0], sizes[2], 0, wall=True, by_groups=True)
    return shape_of_run(rows, sizes, None, job).wall


@pytest.mark.parametrize(("apart", "holds"), [(0.0018, True), (0.0022, False), (0.02, False)])
def test_tensor_ranks_that_end_compute_together_wait_for_each_other_in_it(apart, holds):
    compute = np.ones((STEPS, 1, 1, 2))
    compute[..., 1] += apart
    assert holds_waits(compute) is holds


@pytest.mark.parametrize(
    ("jitter", "between", "holds"),
    [
        (0.0027, 0.02, True),
        (0.0033, 0.02, False),
        (0.0020, 0.0075, True),
        (0.0020, 0.0060, False),
    ],
)
def test_stages_that_keep_their_distance_while_replicas_differ_wait_for_each_other(
    jitter, between, holds
):
    compute = np.ones((STEPS, 2, 2, 1))
    compute[:, :, 0] += between * SIGNS[:, None, None]
    compute[:, :, 1] -= between * SIGNS[:, None, None]
    compute[:, 1] += jitter * SLOWER_SIGNS[:, None, None]
    assert holds_waits(compute) is holds


@pytest.mark.parametrize(
    ("counts", "known", "stages", "microbatches"),
    [
        ((), 0, 1, 4),  # not counted: four for each stage, with fewer the pipeline idles
        ((), 0, 8, 32),
        ((), 6, 2, 6),
        ((8, 8, 2), 6, 2, 8),
        ((0, -1), 6, 2, 6),
        (((1 << 20) - 1,) * 3, 6, 2, (1 << 20) - 1),
        ((1 << 20,) * 3, 6, 2, 6),  # no count is as large
    ],
)
def test_micro_batches_are_counted_or_known_or_four_for_each_stage(
    counts, known, stages, microbatches
):
    ranks = np.arange(max(len(counts), stages))
    floats = {"step_seconds": np.ones(len(ranks))}
    if counts:
        floats["microbatches"] = np.resize(np.array(counts, float), len(ranks))
    zeros = np.zeros(len(ranks), dtype=np.int64)
    rows = Rows(zeros, zeros, ranks, zeros, zeros * 1.0, floats, {})
    job = Layout(stages, stages, 1, known, wall=False)
    found = shape_of_run(rows, (stages, 1, 1), None, job)
    assert (found.microbatches, found.counted) == (microbatches, bool(counts or known))


def test_ranks_leave_the_exchange_late_as_compared_with_the_others_of_their_node():
    """Nodes of one to four ranks, in any order; nothing is known of two ranks' nodes."""
    nodes = np.array([7, 2, 5, 2, 7, 9, 5, 7, -1, 7, 5, -1])
    late = np.array([0.1, 0.0, 0.2, 0.3, 0.4, 0.5, 0.0, 0.2, 0.9, 0.8, np.nan, 0.1])
    ranks = np.arange(len(nodes))
    known = np.isfinite(late)
    floats = {"step_seconds": 1.0 + late[known], "compute_seconds": np.ones(known.sum())}
    start = np.full(known.sum(), 100.0)
    rows = Rows(ranks[known], ranks[known] * 0, ranks[known], nodes[known], start, floats, {})
    shape = Shape(1, len(ranks), 1, 4, False, nodes.reshape(1, -1, 1), timing=1)
    found = steps_of(rows, ranks[known], 1, shape).exit_lateness
    expected = [-0.2, 0.0, 0.2, 0.3, 0.1, np.nan, 0.0, -0.1, np.nan, 0.5, np.nan, np.nan]
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-9)
