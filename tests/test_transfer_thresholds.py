"""How slow an exchange must be to be told: tables of just too little and just enough."""

from dataclasses import replace

import numpy as np
import pytest

from rankscope_analyzers.stragglers import (
    slow_transfer,
)
from straggler_views import (
    EXCHANGE,
    in_steps,
    past,
    ranks,
    shape,
    swinging,
    view,
)

FOUR = shape(tensor=4)
"""Four groups of eight ranks that exchange gradients."""


def exchanges(seconds, *, usual=EXCHANGE, arranged=FOUR, noise=0.0, **options):
    """Return a window of so long exchanges after a past of the usual ones."""
    groups = (1, arranged.tensor)
    before = past(arranged, transfer=np.full(groups, usual), transfer_noise=np.full(groups, noise))
    return view(arranged, exchange=seconds, **{"baseline": before} | options)


def kind(candidate):
    return None if candidate is None else candidate.kind


def group(seconds, usual, index=1):
    """Return (1, 4): one group's seconds, and the others'."""
    values = np.full((1, 4), usual)
    values[0, index] = seconds
    return values


class TestSlowTransfer:
    @pytest.mark.parametrize(
        ("usual", "rise", "found"),
        [
            (0.05, 0.019, None),
            (0.05, 0.021, "network_link"),
            (0.2, 0.039, None),
            (0.2, 0.041, "network_link"),
        ],
    )
    def test_an_exchange_is_slow_by_two_per_cent_of_the_step_and_a_fifth_of_its_own_time(
        self, usual, rise, found
    ):
        slow = exchanges(group(usual + rise, usual), usual=usual)
        assert kind(slow_transfer.slow_exchange(slow)) == found

    def test_slow_groups_of_ranks_whose_nodes_are_all_unknown_are_told_without_ranks(self):
        unknown = replace(FOUR, nodes=np.full(FOUR.sizes, -1))
        two = np.where([[True, True, False, False]], 0.4, EXCHANGE)
        found = slow_transfer.slow_exchange(replace(exchanges(two), shape=unknown))
        assert (kind(found), found.ranks) == ("network_link", ())

    @pytest.mark.parametrize(("rise", "found"), [(0.048, None), (0.052, "network_link")])
    def test_a_rise_counts_from_five_standard_errors_of_its_mean_on(self, rise, found):
        slow = exchanges(group(EXCHANGE + rise, EXCHANGE), noise=0.04)
        assert kind(slow_transfer.slow_exchange(slow)) == found

    @pytest.mark.parametrize(("often", "found"), [(4, None), (5, "network_link")])
    def test_the_newest_ten_exchanges_must_be_longer_as_well(self, often, found):
        slow = in_steps(group(0.4, 0.1), range(1, often + 1), usual=0.1)
        assert kind(slow_transfer.slow_exchange(exchanges(slow))) == found

    @pytest.mark.parametrize(("rest", "found"), [(0.07, None), (0.095, "network_link")])
    def test_what_saves_one_and_a_half_per_cent_of_the_newest_steps_is_told(self, rest, found):
        slow = np.repeat(group(0.15, 0.1)[None], 16, axis=0)
        slow[-4:] = rest
        assert kind(slow_transfer.slow_exchange(exchanges(slow))) == found

    @pytest.mark.parametrize(("factor", "found"), [(1.45, None), (1.55, "network_link")])
    def test_without_a_past_a_group_takes_half_as_long_again_as_the_others(self, factor, found):
        slow = exchanges(group(factor * EXCHANGE, EXCHANGE), baseline=None)
        assert kind(slow_transfer.slow_exchange(slow)) == found

    @pytest.mark.parametrize(
        ("many", "found"), [(2, "network_link"), (3, "global_slowdown"), (4, "global_slowdown")]
    )
    def test_when_most_groups_are_slow_the_fabric_is(self, many, found):
        slow = np.where(np.arange(4) < many, 0.2, 0.1)[None]
        assert kind(slow_transfer.slow_exchange(exchanges(slow))) == found


def lagging(score, lag=0.02, *, replicas=16, rise=0.1, since=40, late=(5,), **options):
    """Return a window of slow exchanges that some ranks leave after the others.

    Args:
        score: the lag in standard errors.
        since: for how many steps the exchange has been slow.
    """
    flat = shape(replicas=replicas)
    noise = lag / score * np.sqrt(40) / (1.25 * 1.4826)
    exit_lateness = swinging(ranks(dict.fromkeys(late, lag), world=replicas), noise, steps=40)
    long = in_steps(np.full((1, 1), EXCHANGE + rise), range(1, since + 1), 40, usual=EXCHANGE)
    return exchanges(
        EXCHANGE + rise, arranged=flat, residual_long=-exit_lateness, transfer_long=long, **options
    )


class TestTheSlowHop:
    @pytest.mark.parametrize(
        ("replicas", "score", "found"),
        [
            (16, 4.6, "global_slowdown"),
            (16, 5.9, "global_slowdown"),
            (16, 6.1, "network_link"),
            (8, 7.9, "global_slowdown"),
            (8, 8.1, "network_link"),
            (9, 6.1, "network_link"),
        ],
    )
    def test_who_leaves_after_all_others_for_sure_is_at_its_end(self, replicas, score, found):
        slow = slow_transfer.slow_exchange(lagging(score, replicas=replicas))
        assert kind(slow) == found
        assert slow.ranks[:1] == ((5,) if found == "network_link" else ())

    @pytest.mark.parametrize(
        ("score", "since", "found"),
        [(4.6, 30, "global_slowdown"), (4.8, 30, None), (4.8, 32, "global_slowdown")],
    )
    def test_an_unclear_lag_is_waited_for_and_no_longer_than_32_steps(self, score, since, found):
        slow = lagging(score * np.sqrt(40 / since), since=since)
        assert kind(slow_transfer.slow_exchange(slow)) == found

    @pytest.mark.parametrize(
        ("lag", "found"), [(0.0009, "global_slowdown"), (0.0011, "network_link")]
    )
    def test_a_lag_of_less_than_a_hundredth_of_the_rise_has_another_origin(self, lag, found):
        assert kind(slow_transfer.slow_exchange(lagging(100, lag))) == found

    @pytest.mark.parametrize(("many", "found"), [(12, "network_link"), (13, "global_slowdown")])
    def test_lag_is_counted_from_the_earliest_fifth_of_the_ranks(self, many, found):
        assert kind(slow_transfer.slow_exchange(lagging(100, late=range(many)))) == found

    @pytest.mark.parametrize(("steps", "found"), [(3, "global_slowdown"), (5, "network_link")])
    def test_lag_is_what_most_of_eight_steps_show_at_least(self, steps, found):
        slow = lagging(1e6, since=5)
        late = in_steps(ranks({5: 0.02}, world=16), range(1, steps + 1), 40)
        found_in = slow_transfer.slow_exchange(replace(slow, residual_long=-late))
        assert kind(found_in) == found

    @pytest.mark.parametrize(("lag", "ends"), [(0.0048, (5,)), (0.0052, (5, 6))])
    def test_who_lags_a_quarter_as_much_is_the_other_end(self, lag, ends):
        late = in_steps(ranks({5: 0.02, 6: lag}, world=16), range(1, 41), 40)
        slow = replace(lagging(100), residual_long=-late)
        assert slow_transfer.slow_exchange(slow).ranks == ends

    def test_where_no_rank_is_known_to_leave_last_none_is_picked_from_the_slow_group(self):
        one_group = exchanges(group(0.2, EXCHANGE), means=True)
        found = slow_transfer.slow_exchange(one_group)
        members = np.arange(one_group.shape.world).reshape(one_group.shape.sizes)[:, :, 1]
        assert (found.kind, found.ranks) == ("network_link", tuple(members.ravel()))

    def test_both_ends_of_a_group_of_two_leave_together(self):
        assert (
            kind(slow_transfer.slow_exchange(lagging(100, replicas=2, late=(1,))))
            == "global_slowdown"
        )
        assert (
            kind(slow_transfer.slow_exchange(lagging(100, replicas=3, late=(1,)))) == "network_link"
        )


def born(score, lag=0.005, **options):
    """Return what is said of a link that was slow from the start: nothing but the lag shows."""
    return slow_transfer.slow_exchange(lagging(score, lag, rise=0.0, **options))


class TestALinkThatWasSlowFromTheStart:
    @pytest.mark.parametrize(("score", "told"), [(11.7, False), (12.3, True)])
    def test_a_lag_of_twelve_standard_errors_convicts_alone(self, score, told):
        found = born(score)
        assert (found is not None) is told
        assert found is None or (found.kind, found.ranks[0]) == ("network_link", 5)

    @pytest.mark.parametrize(("lag", "told"), [(0.0015, False), (0.0017, True)])
    def test_it_costs_four_per_cent_of_the_step_of_which_a_lag_is_a_twentyfifth(self, lag, told):
        found = born(1000, lag)
        assert (found is not None) is told
        assert found is None or found.cost == pytest.approx(lag / 0.04)

    @pytest.mark.parametrize(("lag", "told"), [(0.003, False), (0.0034, True)])
    def test_ranks_of_a_node_that_only_together_are_no_chance_lag_twice_as_much(self, lag, told):
        assert (born(8, lag, late=(4, 5, 6, 7)) is not None) is told

    @pytest.mark.parametrize(("lag", "told"), [(0.0097, True), (0.0103, False)])
    def test_a_lag_of_a_tenth_of_the_exchange_has_another_reason(self, lag, told):
        assert (born(100, lag) is not None) is told

    @pytest.mark.parametrize(("lag", "told"), [(0.0206, True), (0.0211, False)])
    def test_in_a_ring_of_four_it_may_be_a_fifth(self, lag, told):
        assert (born(100, lag, replicas=4, late=(1,)) is not None) is told

    @pytest.mark.parametrize(("lag", "told"), [(11.9e-6, False), (12.1e-6, True)])
    def test_without_any_noise_a_lag_is_known_to_a_microsecond(self, lag, told):
        late = in_steps(ranks({5: lag}, world=16), range(1, 41), 40)
        slow = replace(
            lagging(100, rise=0.0),
            residual_long=-late,
            exit_lateness_long=late,
            step_seconds=1e-3,
        )
        assert (slow_transfer.slow_exchange(slow) is not None) is told

    @pytest.mark.parametrize(("many", "told"), [(8, True), (9, False)])
    def test_the_ends_of_a_hop_are_not_more_than_half_of_the_ranks(self, many, told):
        assert (born(100, late=range(many)) is not None) is told

    @pytest.mark.parametrize(("replicas", "told"), [(3, False), (4, True)])
    def test_a_hop_takes_two_ranks_and_somebody_to_compare_them_with(self, replicas, told):
        assert (born(100, replicas=replicas, late=(1,)) is not None) is told

    @pytest.mark.parametrize(("steps", "told"), [(31, False), (32, True)])
    def test_it_takes_32_steps(self, steps, told):
        slow = lagging(1000, 0.005, rise=0.0)
        few = replace(slow, residual_long=slow.residual_long[-steps:])
        assert (slow_transfer.slow_exchange(few) is not None) is told
