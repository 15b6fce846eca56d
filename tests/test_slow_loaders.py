"""Whose input is slow, told by what the workers of the loaders need for a step's batches."""

import numpy as np
import pytest

from rankscope_analyzers.stragglers import slow_input, slow_loaders
from rankscope_analyzers.stragglers.view import WINDOW_STEPS
from straggler_views import STEP, in_steps, ranks, view

EVERY = range(1, WINDOW_STEPS + 1)
WAITS = in_steps(ranks({2: 0.3}), EVERY)


def needing(*others, own=STEP):
    """Return (steps, 1, 8, 1) what workers need: `own` those of rank 2, the others in turns."""
    needed = np.resize(np.array(others, float), 8)
    needed[2] = own
    return np.broadcast_to(needed[None, None, :, None], (WINDOW_STEPS, 1, 8, 1)).copy()


def test_a_rank_waits_for_what_slows_all_loaders_and_is_not_named():
    seen = view(data=WAITS, loader=needing(0.97))
    assert slow_input.slow_ranks(seen) is None
    found = slow_loaders.slow_for_all(seen)
    assert (found.kind, found.ranks, found.shown_by) == ("storage_checkpoint", (), "workers")
    assert found.cost == pytest.approx(0.3)
    assert (found.observed, found.expected) == pytest.approx((0.97, 0.7))


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (view(data=WAITS), "nothing is known of workers"),
        (view(data=WAITS, loader=needing(0.02)), "the others' workers are fast"),
        (view(data=WAITS, loader=needing(0.84)), "the others' workers get ahead"),
        (view(data=WAITS, loader=needing(0.5, own=0.5)), "workers are not what it waits for"),
        (view(data=WAITS, loader=needing(np.nan)), "of the others nothing is known"),
        (view(data=WAITS, loader=needing(np.nan, np.nan, 0.97)), "too few of them are known"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rank_is_named_unless_the_others_workers_are_as_slow(seen, why):
    assert slow_input.slow_ranks(seen).ranks == (2,), why
    assert slow_loaders.slow_for_all(seen) is None


@pytest.mark.parametrize(("waited", "is_found"), [(0.024, False), (0.03, True)])
def test_loaders_that_just_suffice_are_no_fault(waited, is_found):
    seen = view(data=in_steps(ranks({5: waited}), EVERY), loader=needing(0.99))
    assert (slow_loaders.slow_for_all(seen) is not None) == is_found


def test_slow_workers_of_one_node_are_not_those_of_all():
    """Of eight ranks, two with fast workers are fewer than a third; four are not."""
    waits = in_steps(ranks({2: 0.3}), EVERY)
    few = view(data=waits, loader=needing(0.02, *[0.97] * 7))
    many = view(data=waits, loader=needing(0.02, 0.97))
    assert slow_loaders.slow_for_all(few) is not None
    assert slow_loaders.slow_for_all(many) is None


@pytest.mark.parametrize(("known", "named"), [(3, True), (4, False)])
def test_of_half_of_the_others_it_is_known_what_their_workers_need(known, named):
    needed = needing(*[0.97] * (known + 1), *[np.nan] * 8)
    assert (slow_input.slow_ranks(view(data=WAITS, loader=needed)) is not None) is named


@pytest.mark.parametrize(("known", "is_found"), [(3, False), (4, True)])
def test_loaders_are_compared_where_those_of_half_of_the_ranks_are_known(known, is_found):
    needed = needing(*[0.97] * known, *[np.nan] * 8)
    assert (slow_loaders.slow_for_all(view(data=WAITS, loader=needed)) is not None) is is_found
