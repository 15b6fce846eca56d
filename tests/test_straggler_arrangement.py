"""When compute that is measured as wall time is taken to hold waits for peers."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.rows import Rows
from rankscope_analyzers.stragglers.arrangement import shape_of_run

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
