"""Which long steps are checkpoints, and when they are slow."""

import numpy as np
import pytest

from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.special_steps import CheckpointHistory

NODES = np.repeat(np.arange(4), 8).reshape(1, 32, 1)
JOB = Shape(1, 32, 1, 1, False, NODES)


def uneven(seconds):
    """Return what every rank writes where nodes differ by ten per cent."""
    return seconds * (1 + 0.1 * NODES / 3)


def even(seconds):
    return np.full(NODES.shape, seconds)


def slow_checkpoints(*specials):
    """Return the steps at which checkpoints were found slow."""
    history, slow = CheckpointHistory(), []
    for number, written in enumerate(specials):
        _, found = history.add(25 * number, written, JOB, step_seconds=1.0)
        slow += [number] if found else []
    return slow


def test_two_slow_checkpoints_in_a_row_are_slow_storage():
    assert slow_checkpoints(*[uneven(3.0)] * 4, uneven(12.0), uneven(12.0)) == [5]


def test_slow_checkpoints_began_after_the_last_usual_one():
    history = CheckpointHistory()
    for number in range(6):
        _, found = history.add(25 * number, uneven(3.0 if number < 4 else 12.0), JOB, 1.0)
    worst = float(uneven(12.0).max())
    assert found.lasted_seconds == pytest.approx(2 * (25 + worst))
    usual = found.expected
    assert found.cost * found.lasted_seconds == pytest.approx(2 * (worst - usual))


def test_an_evaluation_between_two_slow_checkpoints_changes_nothing():
    assert slow_checkpoints(*[uneven(3.0)] * 4, uneven(12.0), even(9.0), uneven(12.0)) == [6]


@pytest.mark.parametrize("plain", [uneven(3.0), even(3.0)])
def test_evaluations_with_every_other_checkpoint_are_no_slow_storage(plain):
    first = [uneven(3.0), uneven(12.0)] * 2
    assert slow_checkpoints(*first, *[plain, uneven(12.0)] * 4) == []


def test_evaluations_that_look_like_checkpoints_do_not_make_those_slow():
    assert slow_checkpoints(uneven(3.0), uneven(12.0), even(3.0), uneven(12.0), even(3.0)) == []


@pytest.mark.parametrize(("apart", "slow"), [(0.03, []), (0.05, [6])])
def test_an_evaluation_of_which_one_node_is_late_and_one_with_a_checkpoint_are_not_slow(
    apart, slow
):
    late = np.where(NODES == 2, 9.0 * (1 + apart), 9.0)
    usual = [uneven(3.0), even(9.0), uneven(3.0), even(9.0), uneven(3.0)]
    assert slow_checkpoints(*usual, late, uneven(12.0)) == slow


def test_two_nodes_that_write_slowly_and_equally_long_by_chance_have_not_evaluated():
    nodes = np.repeat(np.arange(2), 8).reshape(1, 16, 1)
    job, history, slow = Shape(1, 16, 1, 1, False, nodes), CheckpointHistory(), []
    for number, (seconds, apart) in enumerate([(3, 0.1)] * 4 + [(12, 0.01)] + [(12, 0.03)] * 2):
        _, found = history.add(25 * number, seconds * (1 + apart * nodes), job, 1.0)
        slow += [number] if found else []
    assert slow == [6]


def test_one_slow_writer_is_named_beside_evaluations():
    slow = np.where(NODES == 2, 9.0, uneven(3.0))
    history = CheckpointHistory()
    history.add(0, uneven(3.0), JOB, 1.0)
    history.add(25, slow, JOB, 1.0)
    history.add(40, even(3.0), JOB, 1.0)
    wrote, found = history.add(50, slow, JOB, 1.0)
    assert wrote
    assert set(found.ranks) == set(range(16, 24))


@pytest.mark.parametrize(("of_others", "named"), [((3.0, 3.0), None), ((3.0, 3.3), (0,))])
def test_rank_zero_that_saves_after_an_evaluation_of_all_has_no_slow_storage(of_others, named):
    """With one rank on each node, no other rank of its node shows what all of them did."""
    job = Shape(1, 3, 1, 1, False, np.arange(3).reshape(1, 3, 1))
    history = CheckpointHistory()
    written = np.array([9.0, *of_others]).reshape(1, 3, 1)
    told = [history.add(50 * number, written, job, 1.0)[1] for number in range(6)]
    assert (told[-1] and told[-1].ranks) == named


NORMAL = [uneven(3.0)] * 4


@pytest.mark.parametrize(("seconds", "slow"), [(5.9, []), (6.1, [5])])
def test_slow_storage_takes_twice_as_long_as_it_did(seconds, slow):
    assert slow_checkpoints(*NORMAL, uneven(seconds), uneven(seconds)) == slow


@pytest.mark.parametrize(("factor", "ranks"), [(1.6, None), (1.73, set(range(16, 24)))])
def test_a_writer_that_needs_two_thirds_more_than_the_median_node_is_slow_alone(factor, ranks):
    written = np.where(NODES == 2, factor * uneven(3.0)[0, 8, 0], uneven(3.0))
    history = CheckpointHistory()
    for step, seconds in enumerate((uneven(3.0), written, written)):
        _, found = history.add(25 * step, seconds, JOB, 1.0)
    assert (found and set(found.ranks)) == ranks


@pytest.mark.parametrize(("apart", "wrote"), [(0.019, False), (0.021, True)])
def test_nodes_that_are_equal_within_a_fiftieth_evaluated(apart, wrote):
    assert CheckpointHistory().add(0, 3.0 * (1 + apart * NODES / 3), JOB, 1.0) == (wrote, None)


@pytest.mark.parametrize(("seconds", "slow"), [(2.4, [6]), (2.55, []), (3.8, []), (3.95, [6])])
def test_an_even_step_of_nearly_normal_length_ends_a_row_of_slow_checkpoints(seconds, slow):
    assert slow_checkpoints(*NORMAL, uneven(12.0), even(seconds), uneven(12.0)) == slow


def test_on_one_node_it_takes_three_slow_ones_in_a_row():
    alone = Shape(1, 32, 1, 1, False, np.zeros((1, 32, 1), int))
    history = CheckpointHistory()
    lengths = [3.0] * 4 + [12.0] * 3
    told = [history.add(25 * at, even(long), alone, 1.0)[1] for at, long in enumerate(lengths)]
    assert [found is not None for found in told] == [False] * 6 + [True]


@pytest.mark.parametrize(("longer", "slow"), [(6, [20]), (7, [])])
def test_the_last_twelve_checkpoints_are_what_is_normal(longer, slow):
    normal = [uneven(3.0)] * (19 - longer) + [uneven(5.0)] * longer
    assert slow_checkpoints(*normal, uneven(9.0), uneven(9.0)) == slow


@pytest.mark.parametrize(("step_seconds", "told"), [(24.0, True), (30.0, False)])
def test_slow_checkpoints_cost_one_and_a_half_per_cent_of_the_time(step_seconds, told):
    history = CheckpointHistory()
    for at, written in enumerate([*NORMAL, uneven(12.0), uneven(12.0)]):
        _, found = history.add(25 * at, written, JOB, step_seconds)
    assert (found is not None) is told
