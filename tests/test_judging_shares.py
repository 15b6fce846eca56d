"""A job with more new records than there is time for gives way, and no other job does."""

from __future__ import annotations

import pytest

from rankscope_analyzers.stragglers.judging_shares import Fresh, JudgingShares

LOOK_SECONDS = 5.0
AVAILABLE = 2.5
SLOW = 1e-3


def shares(**costs: float) -> JudgingShares:
    made = JudgingShares()
    for name, cost in costs.items():
        made.note(name.replace("__", "/"), 1000, 1000 * cost)
    return made


def many(records: int, steps: int = 0) -> Fresh:
    return Fresh(records, steps)


def records_of(cut):
    return {name: one.records for name, one in cut.items()}


def followed(known, fresh, seconds=LOOK_SECONDS):
    return records_of(known.too_many({name: many(one) for name, one in fresh.items()}, {}, seconds))


def test_nothing_is_left_out_where_there_is_time_for_all():
    known = shares(team__a=SLOW, team__b=SLOW)
    affordable = int(AVAILABLE / SLOW / 2)
    assert followed(known, {"team/a": affordable, "team/b": affordable}) == {}
    cut = followed(known, {"team/a": affordable + 1, "team/b": affordable})
    assert cut == {"team/a": pytest.approx(affordable, abs=1)}


def test_a_flood_is_cut_to_what_the_others_leave():
    known = shares(bad__x=SLOW, team__a=SLOW)
    cut = followed(known, {"bad/x": 100_000, "team/a": 500})
    assert cut == {"bad/x": pytest.approx(AVAILABLE / SLOW - 500, abs=1)}


def test_many_jobs_of_one_namespace_take_no_more_than_one():
    known = shares(team__a=SLOW, **{f"bad__{n}": SLOW for n in range(9)})
    fresh = {f"bad/{n}": 100_000 for n in range(9)}
    cut = followed(known, {**fresh, "team/a": 100_000})
    assert cut["team/a"] == pytest.approx(AVAILABLE / SLOW / 2, abs=1)
    assert sum(cut[name] for name in fresh) == pytest.approx(AVAILABLE / SLOW / 2, abs=9)


def test_a_new_job_is_taken_for_as_costly_as_the_worst_of_its_namespace():
    known = shares(bad__x=SLOW, bad__y=SLOW / 10)
    running = {"team/a": many(1)}
    cut = known.too_many(running, {"bad/new": many(100_000)}, LOOK_SECONDS)
    assert records_of(cut) == {"bad/new": 1500}
    assert known.too_many(running, {"other/new": many(100_000)}, LOOK_SECONDS) == {}


def test_a_step_costs_something_however_cheap_records_were():
    known = shares(bad__x=1e-7)
    cut = known.too_many({"bad/x": many(40_000, 20_000)}, {}, LOOK_SECONDS)
    assert cut == {"bad/x": many(20_000, 10_000)}
    assert known.too_many({"bad/x": many(40_000, 10_000)}, {}, LOOK_SECONDS) == {}


def test_new_jobs_delay_those_that_are_followed_by_seconds_and_nobody_at_the_start():
    flood = {"bad/new": many(80_000, 40_000)}
    cut = JudgingShares().too_many({"team/a": many(10, 2)}, flood, LOOK_SECONDS)
    assert cut == {"bad/new": many(12_000, 6_000)}
    assert JudgingShares().too_many({}, flood, LOOK_SECONDS) == {}
    assert JudgingShares().too_many({}, {"a/b": many(300_000, 240_000)}, 0.0) == {
        "a/b": many(150_000, 120_000)
    }


def test_new_jobs_are_not_cut_short_while_most_agents_were_not_asked_yet():
    flood = {"bad/new": many(80_000, 40_000)}
    known, running = JudgingShares(), {"team/a": many(10, 2)}
    assert known.too_many(running, flood, LOOK_SECONDS, starting=True) == {}
    assert known.too_many(running, {"a/b": many(300_000, 240_000)}, 0.0, starting=True) == {
        "team/a": many(0, 0),
        "a/b": many(150_000, 120_000),
    }


def test_on_a_core_that_others_use_as_well_less_is_judged():
    known = JudgingShares()
    known.note("bad/x", 1000, 1000 * SLOW, wall_seconds=4.0)
    assert followed(known, {"bad/x": 100_000}) == {"bad/x": 625}
    assert followed(known, {"bad/x": 100_000}) == {"bad/x": 2500}
    known.note("bad/x", 1000, 1000 * SLOW, wall_seconds=0.9)  # of the clock, not of others
    assert followed(known, {"bad/x": 100_000}) == {"bad/x": 2500}


def test_what_little_judging_took_does_not_tell_what_there_is_for_it():
    known = shares(bad__x=SLOW)
    known.note("team/a", 8, 0.01, wall_seconds=0.9)
    assert followed(known, {"bad/x": 100_000}) == {"bad/x": 2500}


def test_what_few_records_cost_is_no_measure():
    known = JudgingShares()
    known.note("team/a", 255, 10.0)
    assert followed(known, {"team/a": 100_000}) == {}
    known.note("team/a", 256, 256 * SLOW)
    assert followed(known, {"team/a": 100_000}) == {"team/a": 2500}


def test_a_long_pause_gives_no_more_than_the_longest_that_counts():
    known = shares(bad__x=SLOW)
    flood = {"bad/x": 1_000_000}
    assert followed(known, flood, 15.0) == {"bad/x": 7500}
    assert followed(known, flood, 20.0) == {"bad/x": 10_000}
    assert followed(known, flood, 60.0) == {"bad/x": 10_000}


def test_jobs_that_are_gone_are_forgotten():
    known = shares(bad__x=SLOW)
    known.keep({"team/a": None})
    assert followed(known, {"bad/x": 100_000}) == {}


@pytest.mark.parametrize(("wall_seconds", "judged"), [(1.0, 2500), (1.25, 2000)])
def test_more_than_a_second_of_judging_tells_how_busy_the_core_is(wall_seconds, judged):
    known = JudgingShares()
    known.note("bad/x", 1000, 1000 * SLOW, wall_seconds)
    assert followed(known, {"bad/x": 100_000}) == {"bad/x": judged}


@pytest.mark.parametrize(("cost", "cut"), [(0.4e-6, {}), (0.6e-6, {"team/a": 0})])
def test_less_than_half_a_microsecond_is_judged_where_no_time_is_left(cost, cut):
    assert followed(shares(team__a=cost), {"team/a": 1}, seconds=0.0) == cut
