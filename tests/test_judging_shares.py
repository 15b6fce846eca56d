"""A job with more new records than there is time for gives way, and no other job does."""

from __future__ import annotations

import pytest

from rankscope_analyzers.stragglers.judging_shares import (
    FEW_RECORDS,
    JUDGING_SHARE,
    LONGEST_SECONDS,
    JudgingShares,
)

LOOK_SECONDS = 5.0
AVAILABLE = JUDGING_SHARE * LOOK_SECONDS
SLOW = 1e-3


def shares(**costs: float) -> JudgingShares:
    made = JudgingShares()
    for name, cost in costs.items():
        made.note(name.replace("__", "/"), 1000, 1000 * cost)
    return made


def test_nothing_is_left_out_where_there_is_time_for_all():
    known = shares(team__a=SLOW, team__b=SLOW)
    affordable = int(AVAILABLE / SLOW / 2)
    assert known.too_many({"team/a": affordable, "team/b": affordable}, LOOK_SECONDS) == {}
    cut = known.too_many({"team/a": affordable + 1, "team/b": affordable}, LOOK_SECONDS)
    assert cut == {"team/a": pytest.approx(affordable, abs=1)}


def test_a_flood_is_cut_to_what_the_others_leave():
    known = shares(bad__x=SLOW, team__a=SLOW)
    cut = known.too_many({"bad/x": 100_000, "team/a": 500}, LOOK_SECONDS)
    assert cut == {"bad/x": pytest.approx(AVAILABLE / SLOW - 500, abs=1)}


def test_many_jobs_of_one_namespace_take_no_more_than_one():
    known = shares(team__a=SLOW, **{f"bad__{n}": SLOW for n in range(9)})
    fresh = {f"bad/{n}": 100_000 for n in range(9)}
    cut = known.too_many({**fresh, "team/a": 100_000}, LOOK_SECONDS)
    assert cut["team/a"] == pytest.approx(AVAILABLE / SLOW / 2, abs=1)
    assert sum(cut[name] for name in fresh) == pytest.approx(AVAILABLE / SLOW / 2, abs=9)


def test_a_new_job_is_taken_for_as_costly_as_the_worst_of_its_namespace():
    known = shares(bad__x=SLOW, bad__y=SLOW / 10)
    flood = {"bad/new": 100_000}
    assert known.too_many(flood, LOOK_SECONDS) == {
        "bad/new": pytest.approx(AVAILABLE / SLOW, abs=1)
    }
    assert known.too_many({"other/new": 100_000}, LOOK_SECONDS) == {}


def test_what_few_records_cost_is_no_measure():
    known = JudgingShares()
    known.note("team/a", FEW_RECORDS - 1, 10.0)
    assert known.too_many({"team/a": 100_000}, LOOK_SECONDS) == {}
    known.note("team/a", FEW_RECORDS, FEW_RECORDS * SLOW)
    assert known.too_many({"team/a": 100_000}, LOOK_SECONDS)


def test_a_long_pause_gives_no_more_than_the_longest_that_counts():
    known = shares(bad__x=SLOW)
    flood = {"bad/x": 1_000_000}
    longest = known.too_many(flood, LONGEST_SECONDS)
    assert longest == {"bad/x": pytest.approx(JUDGING_SHARE * LONGEST_SECONDS / SLOW, abs=1)}
    assert known.too_many(flood, 2 * LONGEST_SECONDS) == longest
    assert known.too_many(flood, LONGEST_SECONDS / 2) == {
        "bad/x": pytest.approx(longest["bad/x"] / 2, abs=1)
    }


def test_jobs_that_are_gone_are_forgotten():
    known = shares(bad__x=SLOW)
    known.keep({"team/a": None})
    assert known.too_many({"bad/x": 100_000}, LOOK_SECONDS) == {}
