"""Whether one of several alternatives was hit so often by chance."""

import numpy as np
import pytest

from rankscope_analyzers.numeric.binomial import some_hit_so_often


@pytest.mark.parametrize(("hits", "expected"), [(5, 4.0**-4), (1, 4 * (1 - 0.75**5))])
def test_the_chance_is_that_of_one_alternative_times_their_number(hits, expected):
    assert some_hit_so_often(5, hits, 0.25) == pytest.approx(expected)


def test_it_is_no_less_than_what_random_hits_do():
    hits = np.random.default_rng(0).integers(0, 8, (20_000, 12))
    most = np.array([np.bincount(one, minlength=8).max() for one in hits])
    for least in (4, 5, 6):
        assert float((most >= least).mean()) <= 1.1 * some_hit_so_often(12, least, 1 / 8)
