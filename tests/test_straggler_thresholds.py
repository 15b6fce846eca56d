"""How late ranks must be to be named: tables of just too little and just enough, without noise."""

from dataclasses import replace

import numpy as np
import pytest

from rankscope_analyzers.stragglers import (
    attribution,
    cpu_starvation,
    global_slowdown,
    sample_imbalance,
    slow_input,
    slow_kernels,
)
from straggler_views import (
    COMPUTE,
    in_steps,
    past,
    ranks,
    shape,
    swinging,
    view,
)


def named(candidate):
    return None if candidate is None else candidate.ranks


def slower(factors, **options):
    """Return a window in which ranks compute so many times as long as their peers."""
    return view(compute=COMPUTE * ranks(factors, 1.0), **options)


class TestSlowKernels:
    @pytest.mark.parametrize(("factor", "culprits"), [(1.028, None), (1.032, (3,))])
    def test_beyond_its_own_past_a_rank_is_slow_from_three_per_cent_on(self, factor, culprits):
        assert named(slow_kernels.slow_ranks(slower({3: factor}))) == culprits

    @pytest.mark.parametrize(("factor", "culprits"), [(1.065, None), (1.078, (3,))])
    def test_without_a_past_four_per_cent_more_may_be_the_silicon(self, factor, culprits):
        assert named(slow_kernels.slow_ranks(slower({3: factor}, healthy=False))) == culprits

    @pytest.mark.parametrize(
        ("before", "factor", "culprits"),
        [(1.0, 1.05, (3,)), (1.03, 1.05, None), (1.5, 1.068, None), (1.5, 1.076, (3,))],
    )
    def test_a_past_excuses_what_a_chip_can_differ_by_and_no_more(self, before, factor, culprits):
        baseline = past(shape(), relative=ranks({3: before}, 1.0))
        assert named(slow_kernels.slow_ranks(slower({3: factor}, baseline=baseline))) == culprits

    @pytest.mark.parametrize(("often", "culprits"), [(4, None), (5, (3,))])
    def test_who_is_slow_in_less_than_three_of_ten_steps_is_not_slow(self, often, culprits):
        compute = COMPUTE * in_steps(ranks({3: 1.3}, 1.0), range(1, often + 1), usual=1.0)
        assert named(slow_kernels.slow_ranks(view(compute=compute))) == culprits

    @pytest.mark.parametrize(("factor", "culprits"), [(1.09, None), (1.115, (3,))])
    def test_a_mean_counts_from_five_of_its_standard_errors_on(self, factor, culprits):
        compute = COMPUTE * swinging(ranks({3: factor}, 1.0), 0.08)
        found = view(compute=compute)
        own = replace(found, relative=compute / COMPUTE)
        assert named(slow_kernels.slow_ranks(own)) == culprits

    @pytest.mark.parametrize(("second", "culprits"), [(1.09, (3,)), (1.11, (3, 5))])
    def test_who_has_half_of_the_worst_excess_is_accused_with_it(self, second, culprits):
        assert named(slow_kernels.slow_ranks(slower({3: 1.2, 5: second}))) == culprits

    @pytest.mark.parametrize(("part", "culprits"), [(0.2, None), (0.3, (3,))])
    def test_what_costs_less_than_one_and_a_half_per_cent_of_the_step_is_not_told(
        self, part, culprits
    ):
        found = view(compute=part * ranks({3: 1.06}, 1.0), waits=part * ranks({3: 0.0}, 0.06))
        assert named(slow_kernels.slow_ranks(found)) == culprits

    @pytest.mark.parametrize(("factor", "culprits"), [(1.038, None), (1.043, (2, 3))])
    def test_a_replica_is_slow_from_four_per_cent_on(self, factor, culprits):
        arranged = shape(replicas=4, tensor=2)
        compute = COMPUTE * np.array([1, factor, 1, 1])[None, :, None]
        found = slow_kernels.slow_replicas(view(arranged, compute=compute))
        assert (found and tuple(sorted(found.ranks))) == culprits
        assert found is None or found.certainty == 0.5

    @pytest.mark.parametrize(("factor", "slow"), [(1.11, False), (1.13, True)])
    def test_a_replicas_mean_counts_from_six_of_its_standard_errors_on(self, factor, slow):
        ratios = swinging(np.array([1, factor, 1, 1, 1, 1, 1, 1.0]), 0.08)
        found = view(compute=COMPUTE * ranks({1: factor}, 1.0))
        assert (slow_kernels.slow_replicas(replace(found, replica=ratios)) is not None) is slow


class TestBlame:
    def is_conclusive(self, excess, arranged=None, **options):
        late = ranks(excess, world=(arranged or shape()).world)
        accused = late > 0.5 * late.max()
        return attribution.is_conclusive(
            view(arranged, compute=COMPUTE + late, **options), late, accused
        )

    @pytest.mark.parametrize(("seconds", "convicted"), [(0.0029, False), (0.0031, True)])
    def test_less_than_a_turn_of_the_scheduler_convicts_nobody(self, seconds, convicted):
        assert self.is_conclusive({3: seconds}) is convicted

    @pytest.mark.parametrize(("next_one", "convicted"), [(0.052, False), (0.048, True)])
    def test_a_culprit_is_late_by_twice_as_much_as_the_next_one(self, next_one, convicted):
        late = ranks({3: 0.1, 5: next_one})
        found = view(compute=COMPUTE + late)
        assert attribution.is_conclusive(found, late, late == 0.1) is convicted

    @pytest.mark.parametrize(("many", "convicted"), [(3, True), (4, False), (5, False)])
    def test_half_of_the_ranks_are_convicted_only_if_they_fill_their_nodes(self, many, convicted):
        spread = shape(per_node=8)
        assert self.is_conclusive(dict.fromkeys(range(many), 0.05), spread) is convicted
        assert self.is_conclusive(dict.fromkeys(range(many), 0.05)) is (convicted or many == 4)

    @pytest.mark.parametrize(("seconds", "convicted"), [(0.09, False), (0.11, True)])
    def test_or_if_they_are_late_by_a_tenth_of_the_step(self, seconds, convicted):
        assert self.is_conclusive(dict.fromkeys(range(4), seconds), shape(per_node=8)) is convicted

    @pytest.mark.parametrize(("share", "convicted"), [(0.2, False), (0.3, True)])
    def test_peers_wait_for_a_quarter_of_its_excess_or_it_holds_nobody_up(self, share, convicted):
        waits = 0.1 + share * ranks({3: 0.0}, 0.1)
        assert self.is_conclusive({3: 0.1}, waits=waits) is convicted


class TestSlowInput:
    @pytest.mark.parametrize(("seconds", "culprits"), [(0.024, None), (0.026, (3,))])
    def test_input_that_costs_a_fortieth_of_the_step_is_told(self, seconds, culprits):
        assert named(slow_input.slow_ranks(view(data=ranks({3: seconds})))) == culprits

    @pytest.mark.parametrize(("of_another", "cost"), [(0.0, 0.1), (-0.02, 0.1), (0.03, 0.07)])
    def test_what_others_wait_for_input_in_any_case_is_no_part_of_its_cost(self, of_another, cost):
        found = slow_input.slow_ranks(view(data=ranks({3: 0.1, 5: of_another})))
        assert found.cost == pytest.approx(cost)

    @pytest.mark.parametrize(("often", "culprits"), [(4, None), (5, (3,))])
    def test_a_queue_that_runs_dry_in_half_of_the_steps_is_not_slow(self, often, culprits):
        data = in_steps(ranks({3: 0.2}), range(1, often + 1))
        late = view(data=data, data_long=np.zeros_like(data))
        assert named(slow_input.slow_ranks(late)) == culprits

    @pytest.mark.parametrize(("turns", "culprits"), [(3, None), (4, (3,))])
    def test_workers_that_deliver_together_let_a_rank_wait_in_every_eighth_step(
        self, turns, culprits
    ):
        data = in_steps(ranks({3: 0.5}), (8, 16))
        long = in_steps(ranks({3: 0.5}), [8 * turn for turn in range(1, turns + 1)], steps=40)
        late = view(data=data, data_long=long, waits=ranks({3: 0.0}, 0.1))
        assert named(slow_input.slow_ranks(late)) == culprits

    @pytest.mark.parametrize(("second", "culprits"), [(0.09, (3,)), (0.11, (3, 5))])
    def test_who_has_half_of_the_worst_wait_is_named_with_it(self, second, culprits):
        assert named(slow_input.slow_ranks(view(data=ranks({3: 0.2, 5: second})))) == culprits

    @pytest.mark.parametrize(("many", "culprits"), [(4, (7,)), (5, None)])
    def test_when_most_ranks_wait_for_input_no_rank_is_named(self, many, culprits):
        data = ranks({7: 0.2} | dict.fromkeys(range(many - 1), 0.03))
        assert named(slow_input.slow_ranks(view(data=data))) == culprits

    @pytest.mark.parametrize(("seconds", "culprits"), [(0.11, None), (0.14, (3,))])
    def test_a_mean_wait_counts_from_five_of_its_standard_errors_on(self, seconds, culprits):
        data = swinging(ranks({3: seconds}), 0.1)
        late = view(data=data, waits=ranks({3: 0.0}, 0.2), data_long=np.full((40, 1, 8, 1), 0.2))
        assert named(slow_input.slow_ranks(late)) == culprits

    @pytest.mark.parametrize(
        ("worst", "others", "culprits"),
        [(0.2, 0.038, (7,)), (0.2, 0.042, None), (0.05, 0.024, (7,)), (0.05, 0.026, None)],
    )
    def test_who_waits_while_all_others_wait_a_fifth_as_long_shares_what_is_slow(
        self, worst, others, culprits
    ):
        waits = others + ranks({7: worst})
        late = view(data=ranks({7: worst}), input=np.repeat(waits[None], 16, axis=0))
        assert named(slow_input.slow_ranks(late)) == culprits

    @pytest.mark.parametrize(
        ("seconds", "fast", "told"), [(0.024, 2, False), (0.026, 2, True), (0.026, 3, False)]
    )
    def test_what_seven_of_ten_ranks_wait_for_in_turns_is_the_storages(self, seconds, fast, told):
        turns = np.where(np.arange(16)[:, None] % 8 == np.arange(8), 8 * seconds, 0.0)
        turns[:, :fast] = 0.0
        late = view(input=turns[:, None, :, None])
        assert (slow_input.slow_for_all(late) is not None) is told

    @pytest.mark.parametrize(("many", "told"), [(3, True), (4, True), (5, False)])
    def test_slow_input_of_more_than_half_of_the_ranks_is_not_theirs(self, many, told):
        late = view(data=ranks(dict.fromkeys(range(many), 0.1)))
        assert (slow_input.slow_ranks(late) is not None) is told

    @pytest.mark.parametrize(("seconds", "told"), [(0.024, False), (0.026, True)])
    def test_input_that_all_wait_for_is_the_storages(self, seconds, told):
        late = view(data_median=np.full(16, seconds))
        found = slow_input.slow_for_all(late)
        assert (found is not None) is told
        assert found is None or (found.kind, found.shown_by) == ("storage_checkpoint", "input")

    @pytest.mark.parametrize(
        ("lasted", "lost"),
        [(1.3, 0.3), (1.0, 0.2), (2.0, 0.5)],
        ids=["longer steps", "the median rank", "the last rank"],
    )
    def test_slow_storage_costs_what_steps_take_longer(self, lasted, lost):
        waits = np.repeat(ranks({7: 0.5}, usual=0.2)[None], 16, axis=0)
        durations = np.full(16, lasted)
        late = view(input=waits, data_median=np.full(16, 0.2), duration=durations)
        assert slow_input.slow_for_all(late).cost == pytest.approx(lost / lasted)

    @pytest.mark.parametrize(("often", "told"), [(4, False), (5, True)])
    def test_storage_is_slow_in_most_of_the_newest_steps(self, often, told):
        rise = in_steps(0.2, range(1, often + 1))
        assert (slow_input.slow_for_all(view(data_median=rise)) is not None) is told


class TestStarved:
    @pytest.mark.parametrize(("seconds", "culprits"), [(0.024, None), (0.026, (3,))])
    def test_a_fortieth_of_the_step_without_a_cpu_is_told(self, seconds, culprits):
        waited = ranks({3: seconds})
        found = view(cpu_wait=waited, waits=ranks({3: 0.0}, seconds))
        assert named(cpu_starvation.starved_ranks(found)) == culprits

    @pytest.mark.parametrize(("often", "culprits"), [(4, None), (5, (3,))])
    def test_who_waits_for_a_cpu_in_a_third_of_the_steps_is_starved(self, often, culprits):
        waited = in_steps(ranks({3: 0.4}), range(1, often + 1))
        found = view(cpu_wait=waited, waits=ranks({3: 0.0}, 0.4))
        assert named(cpu_starvation.starved_ranks(found)) == culprits

    @pytest.mark.parametrize(("usual", "culprits"), [(0.027, None), (0.023, (3,))])
    def test_on_a_crowded_node_a_starved_rank_waits_four_times_as_long(self, usual, culprits):
        found = view(cpu_wait=ranks({3: 0.1}, usual), waits=ranks({3: 0.0}, 0.1))
        assert named(cpu_starvation.starved_ranks(found)) == culprits

    @pytest.mark.parametrize(("second", "culprits"), [(0.09, (3,)), (0.11, (3, 5))])
    def test_who_waits_half_as_long_as_the_worst_is_named_with_it(self, second, culprits):
        found = view(cpu_wait=ranks({3: 0.2, 5: second}), waits=ranks({3: 0.0, 5: 0.0}, 0.2))
        assert named(cpu_starvation.starved_ranks(found)) == culprits

    @pytest.mark.parametrize(("worked", "culprits"), [(1.0e-9, (3,)), (1.6e-9, None)])
    def test_less_work_than_a_nanosecond_is_none(self, worked, culprits):
        """Rank 3 waits five and a half times as long as the others, who did no work at all."""
        found = view(cpu_wait=ranks({3: 0.1}, 0.018), waits=ranks({3: 0.0}, 0.1))
        work = np.zeros_like(found.compute)
        work[:, 0, 3] = worked / len(work)
        assert named(cpu_starvation.starved_ranks(replace(found, compute=work))) == culprits


class TestAllSlower:
    @pytest.mark.parametrize(("factor", "told"), [(1.038, False), (1.042, True)])
    def test_a_change_of_data_explains_four_per_cent(self, factor, told):
        assert (global_slowdown.slow_compute(view(compute=COMPUTE * factor)) is not None) is told

    @pytest.mark.parametrize(("factor", "told"), [(1.19, False), (1.21, True)])
    def test_on_shared_cpus_it_takes_a_fifth(self, factor, told):
        crowded = view(compute=COMPUTE * factor, cpu_wait=0.02)
        assert crowded.crowded
        assert (global_slowdown.slow_compute(crowded) is not None) is told

    @pytest.mark.parametrize(("often", "told"), [(4, False), (5, True)])
    def test_the_newest_ten_steps_must_be_up_as_well(self, often, told):
        compute = COMPUTE * in_steps(1.3, range(1, often + 1), usual=1.0)[:, None, None, None]
        assert (global_slowdown.slow_compute(view(compute=compute)) is not None) is told

    @pytest.mark.parametrize(("many", "how"), [(11, "most"), (16, "most"), (17, ""), (18, "")])
    def test_all_means_more_than_five_of_six_ranks_and_most_more_than_half(self, many, how):
        factors = np.where(np.arange(20) < many, 1.2, 1.0)[None, :, None]
        found = global_slowdown.slow_compute(view(shape(replicas=20), compute=COMPUTE * factors))
        assert (found.shown_by, found.slower) == (how, (many, 20))

    @pytest.mark.parametrize(("noise", "told"), [(0.032, True), (0.036, False)])
    def test_the_rise_is_compared_with_the_noise_of_window_and_start(self, noise, told):
        baseline = past(shape(), stage_noise=noise)
        found = view(compute=COMPUTE * 1.0577, baseline=baseline)
        assert (global_slowdown.slow_compute(found) is not None) is told

    def test_samples_that_were_not_counted_at_the_start_excuse_nothing(self):
        found = view(compute=COMPUTE * 1.2, samples=10.0)
        assert global_slowdown.slow_compute(found) is not None

    @pytest.mark.parametrize(
        ("factor", "often", "told"), [(1.19, 16, False), (1.21, 11, False), (1.21, 12, True)]
    )
    def test_whole_steps_that_are_a_fifth_longer_are_told_where_nothing_else_is_known(
        self, factor, often, told
    ):
        duration = in_steps(factor, range(1, often + 1), usual=1.0)
        found = view(duration=duration, known=frozenset())
        assert (global_slowdown.slow_steps(found) is not None) is told
        assert global_slowdown.slow_steps(replace(found, known=frozenset({"compute"}))) is None


def judged_counts(counts, compute):
    return sample_imbalance.uneven_samples(view(compute=compute, samples=counts, steps=16))


class TestSampleImbalance:
    @pytest.mark.parametrize(("most", "told"), [(10.55, False), (10.65, True)])
    def test_the_largest_count_is_above_the_mean_by_a_twentieth(self, most, told):
        counts = ranks({3: most}, 10.0)
        assert (judged_counts(counts, 0.08 * counts) is not None) is told

    @pytest.mark.parametrize(("counted", "told"), [(17, False), (18, True)])
    def test_nine_of_ten_ranks_are_counted_or_nothing_is_compared(self, counted, told):
        counts = ranks({3: 15.0}, 10.0, world=20)
        counts[:, counted:] = np.nan
        late = COMPUTE * ranks({3: 1.5}, 1.0, world=20)
        found = view(shape(replicas=20), compute=late, samples=counts)
        assert (sample_imbalance.uneven_samples(found) is not None) is told

    @pytest.mark.parametrize(("seconds", "told"), [(0.2, False), (0.18, True)])
    def test_counts_explain_half_of_the_differences_in_compute(self, seconds, told):
        """One rank has more samples and is late by 0.3 s, two others are late without any."""
        late = COMPUTE + ranks({3: 0.3, 5: seconds, 6: seconds})
        assert (judged_counts(ranks({3: 15.0}, 10.0), late) is not None) is told

    @pytest.mark.parametrize(("seconds", "told"), [(0.024, False), (0.026, True)])
    def test_unequal_counts_that_cost_a_fortieth_of_the_step_are_told(self, seconds, told):
        late = ranks({3: seconds})
        assert (judged_counts(10.0 + 200 * late, COMPUTE + late * 8 / 7) is not None) is told

    @pytest.mark.parametrize(("often", "rank"), [(11, -1), (12, 3)])
    def test_the_rank_is_named_that_has_the_most_in_seven_of_ten_steps(self, often, rank):
        mine, others = ranks({3: 15.0}, 10.0), ranks({5: 15.0}, 10.0)
        counts = np.where(np.arange(16)[:, None, None, None] < often, mine, others)
        assert judged_counts(counts, 0.05 * counts).sample_imbalance.rank == rank
