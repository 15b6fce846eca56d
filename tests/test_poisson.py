import random

import pytest

from rankscope_analyzers.numeric.poisson import at_most, interval

# Table of Garwood (1936) and of every textbook since, to the digits that they print.
PUBLISHED = {
    0: (0.0, 3.689), 1: (0.0253, 5.572), 2: (0.2422, 7.225), 5: (1.623, 11.668),
    10: (4.795, 18.390), 20: (12.217, 30.888), 50: (37.111, 65.919), 100: (81.364, 121.627),
}  # fmt: skip


@pytest.mark.parametrize("count", PUBLISHED)
def test_intervals_are_those_that_tables_have(count):
    assert interval(count) == pytest.approx(PUBLISHED[count], rel=1e-3)


def test_a_large_count_has_the_interval_of_the_normal_distribution():
    low, high = interval(10_000)
    assert low == pytest.approx(10_000 - 196, rel=1e-3)
    assert high == pytest.approx(10_000 + 197, rel=1e-3)


def test_more_confidence_takes_a_wider_interval():
    assert interval(4, 0.99).low < interval(4).low < interval(4).high < interval(4, 0.99).high


def test_the_true_mean_is_within_as_often_as_it_is_said_to_be():
    draw = random.Random(1)

    def count(mean):
        found, passed = 0, draw.expovariate(1.0)
        while passed < mean:
            found, passed = found + 1, passed + draw.expovariate(1.0)
        return found

    for mean in (0.5, 3.0, 20.0):
        within = [interval(count(mean)) for _ in range(400)]
        assert sum(low <= mean <= high for low, high in within) >= 0.95 * 400 - 9


def test_nothing_happens_at_a_rate_of_nothing():
    assert at_most(0, 0.0) == 1.0
    assert at_most(3, 2.0) == pytest.approx(0.857123, rel=1e-5)
