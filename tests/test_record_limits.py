"""Which numbers of a record are too large to be any: just below the limit, and at it."""

import numpy as np
import pytest

from rankscope_analyzers.steps.records import Account, Rules, usable

COLUMNS = ("step", "rank", "t_start_unix_seconds", "step_seconds")
PLAIN = {"step": 7.0, "rank": 3.0, "t_start_unix_seconds": 1.76e9, "step_seconds": 0.9}


def dropped(world=None, **changes):
    """Return why the second of two records is left out, nothing if it is used."""
    table = {name: np.array([PLAIN[name], changes.get(name, PLAIN[name])]) for name in COLUMNS}
    account = Account()
    kept = usable(table, Rules(COLUMNS, (), world), np.arange(2), account)
    assert kept is None or kept.tolist() == [True, False]
    return [(one.reason, one.count) for one in account.dropped]


@pytest.mark.parametrize(
    ("column", "largest", "too_large", "reason"),
    [
        ("step", 2.0**53 - 1, 2.0**53, "oversized"),
        ("step_seconds", 0.99e9, 1e9, "oversized"),
        ("t_start_unix_seconds", 2.49e11, 2.5e11, "oversized"),
        ("t_start_unix_seconds", -2.49e11, -2.5e11, "oversized"),
        ("rank", 2.0**20 - 1, 2.0**20, "foreign"),
    ],
)
def test_numbers_that_nobody_counts_to_are_left_out(column, largest, too_large, reason):
    assert dropped(**{column: largest}) == []
    assert dropped(**{column: too_large}) == [(reason, 1)]


def test_a_rank_that_the_job_does_not_have_is_left_out():
    assert dropped(4, rank=3.0) == []
    assert dropped(4, rank=4.0) == [("foreign", 1)]
