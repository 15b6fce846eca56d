"""Which long steps are checkpoints, and when they are slow."""

import numpy as np
import pytest

from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.special_steps import CheckpointWatch

NODES = np.repeat(np.arange(4), 8).reshape(1, 32, 1)
JOB = Shape(1, 32, 1, 1, False, NODES)


def uneven(seconds):
    """Return what every rank writes where nodes differ by ten per cent."""
    return seconds * (1 + 0.1 * NODES / 3)


def even(seconds):
    return np.full(NODES.shape, seconds)


def watched(*specials):
    """Return the steps at which checkpoints were found slow."""
    watch, slow = CheckpointWatch(), []
    for number, written in enumerate(specials):
        _, found = watch.see(25 * number, written, JOB, step_seconds=1.0)
        slow += [number] if found else []
    return slow


def test_two_slow_checkpoints_in_a_row_are_slow_storage():
    assert watched(*[uneven(3.0)] * 4, uneven(12.0), uneven(12.0)) == [5]


def test_an_evaluation_between_two_slow_checkpoints_changes_nothing():
    assert watched(*[uneven(3.0)] * 4, uneven(12.0), even(9.0), uneven(12.0)) == [6]


@pytest.mark.parametrize("plain", [uneven(3.0), even(3.0)])
def test_evaluations_with_every_other_checkpoint_are_no_slow_storage(plain):
    first = [uneven(3.0), uneven(12.0)] * 2
    assert watched(*first, *[plain, uneven(12.0)] * 4) == []


def test_evaluations_that_look_like_checkpoints_do_not_make_those_slow():
    assert watched(uneven(3.0), uneven(12.0), even(3.0), uneven(12.0), even(3.0)) == []


def test_one_slow_writer_is_named_beside_evaluations():
    slow = np.where(NODES == 2, 9.0, uneven(3.0))
    watch = CheckpointWatch()
    watch.see(0, uneven(3.0), JOB, 1.0)
    watch.see(25, slow, JOB, 1.0)
    watch.see(40, even(3.0), JOB, 1.0)
    wrote, found = watch.see(50, slow, JOB, 1.0)
    assert wrote
    assert set(found.ranks) == set(range(16, 24))
