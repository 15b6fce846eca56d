"""What is compared of steps: which part of a rank's time its peers are said to wait for."""

import numpy as np
import pytest

from rankscope_analyzers.stragglers.quantities import Steps, derive
from rankscope_analyzers.stragglers.view import Candidate
from straggler_views import shape


def derived(arranged, step=1.0, compute=0.6, sync=0.2, rest=0.0):
    """Return the quantities of one step, of which nothing but what is given is measured."""
    wide = (1, *arranged.sizes)
    busy, waits, other = (np.array(np.broadcast_to(v, wide), float) for v in (compute, sync, rest))
    data = np.full(wide, step) - busy - waits - other
    return derive(Steps(np.full(wide, step), data, busy, waits, other), arranged)


def of_first(arranged, value):
    """Return (P, D, T): a value of the first rank, 0 of all others."""
    found = np.zeros(arranged.sizes)
    found[0, 0, 0] = value
    return found


@pytest.mark.parametrize(("share", "waited"), [(0.019, 0.019), (0.021, 0.0)])
def test_peers_wait_for_a_rest_of_a_fiftieth_of_the_step(share, waited):
    """Whoever exchanges with the peers of a rank that stalls has nobody who did not wait."""
    arranged = shape(replicas=4, tensor=2)
    rest = of_first(arranged, share)
    sync = 0.2 + share - rest
    found = derived(arranged, sync=sync, rest=rest)
    assert found.transfer[0, 0].tolist() == pytest.approx([0.2, 0.2 + waited])


@pytest.mark.parametrize(("tensor", "ratio"), [(2, 1.2), (3, 1.0)])
def test_ranks_are_compared_with_their_replica_from_three_of_them_on(tensor, ratio):
    arranged = shape(replicas=4, tensor=tensor)
    compute = np.where(np.arange(4)[None, :, None] == 1, 0.6, 0.5)
    found = derived(arranged, compute=compute, sync=0.8 - compute)
    assert found.relative[0, 0, 1].tolist() == pytest.approx([ratio] * tensor)


def test_the_extent_of_a_fault_leaves_out_what_is_not_known_or_not_finite():
    """A ratio to nothing is infinite: it says neither that the fault was there nor that not."""
    candidate = Candidate("gpu_compute", 0.1, (0,), -1, 2.0, 1.0)
    late = np.array([0.0, 1.0, np.inf, np.nan, 1.0, 0.0])
    found = candidate.with_extent(late)
    assert (found.began, found.ended) == (1, 4)
    assert candidate.with_extent(np.full(4, np.inf)) == candidate
