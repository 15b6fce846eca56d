import numpy as np
import pytest

from rankscope_analyzers.numeric import peers
from rankscope_analyzers.numeric.row_statistics import column_median, row_maximum, row_median


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 17])
def test_the_peer_median_is_the_median_of_all_others(ranks):
    values = np.random.default_rng(ranks).random((20, ranks))
    values[3, 0] = np.nan
    found = peers.peer_median(values)
    for row in range(20):
        for rank in range(ranks):
            others = np.delete(values[row], rank)
            others = others[np.isfinite(others)]
            if np.isnan(values[row, rank]) or not len(others):
                assert np.isnan(found[row, rank])
            else:
                assert found[row, rank] == pytest.approx(np.median(others))


def test_equal_values_are_their_own_peers():
    assert peers.peer_median(np.full((2, 4), 5.0)).tolist() == [[5.0] * 4] * 2


def test_a_lonely_rank_has_no_peers():
    assert np.isnan(peers.peer_median(np.array([[1.0], [2.0]]))).all()


def test_stages_are_compared_within_themselves():
    values = np.array([[1.0, 1.0, 9.0, 9.0]])
    assert peers.peer_median_by_stage(values, np.array([0, 0, 1, 1])).tolist() == [[1, 1, 9, 9]]


def test_one_wild_rank_does_not_raise_the_noise():
    random = np.random.default_rng(1)
    excess = random.normal(0.0, 1.0, (400, 8))
    quiet = peers.noise(excess)[0]
    excess[:, 3] *= 50
    assert quiet == pytest.approx(1.0, rel=0.2)
    assert peers.noise(excess)[0] == pytest.approx(quiet, rel=0.2)


def test_suspects_are_measured_against_the_healthy_of_their_stage():
    values = np.array([[5.0, 1.0, 3.0, 8.0, 8.0, 8.0]])
    stages = np.array([0, 0, 0, 1, 1, 1])
    suspects = np.array([True, False, False, False, False, False])
    found = peers.healthy_median_by_stage(values, suspects, stages)
    assert found.tolist() == [[2, 2, 2, 8, 8, 8]]


def test_a_stage_of_suspects_takes_the_healthy_of_the_whole_row():
    values = np.array([[5.0, 5.0, 1.0, 3.0]])
    suspects = np.array([True, True, False, False])
    found = peers.healthy_median_by_stage(values, suspects, np.array([0, 0, 1, 1]))
    assert found[0].tolist() == [2, 2, 2, 2]


def test_row_statistics_of_nothing_are_nan_or_zero_and_silent():
    nothing = np.full((2, 3), np.nan)
    assert np.isnan(row_median(nothing)).all()
    assert np.isnan(column_median(nothing)).all()
    assert row_maximum(nothing).tolist() == [0.0, 0.0]
