"""When stalls of hosts and unequal work are told: tables of just too little and just enough."""

from dataclasses import replace

import numpy as np
import pytest

from rankscope_analyzers.stragglers import cause_selection, host_stalls, partition_imbalance
from rankscope_analyzers.stragglers.view import Candidate, Spikes
from straggler_views import COMPUTE, STEP, past, shape, view


def stalled(arranged, struck, seconds=0.1, steps=40, **options):
    """Return a window in which ranks are stopped, by step counted from the newest, 1."""
    nodes = arranged.nodes.ravel()
    longest, worst = np.zeros(steps), np.full(steps, -1.0)
    for step, rank in struck.items():
        longest[-step], worst[-step] = seconds, rank
    hits = np.bincount(nodes[list(struck.values())], minlength=arranged.node_count)
    return view(arranged, spikes=Spikes(longest, hits, worst), **options)


def ranks_of(candidate):
    return None if candidate is None else tuple(sorted(candidate.ranks))


def hits(on_first, elsewhere):
    """Return stalls of each rank on the first node, and of one on each of the next, in turn."""
    ranks = [turn % 4 for turn in range(on_first)]
    ranks += [4 * (1 + turn % 3) for turn in range(elsewhere)]
    return {1 + 3 * at: rank for at, rank in enumerate(ranks)}


class TestHostStalls:
    @pytest.mark.parametrize(("on_first", "elsewhere", "named"), [(8, 2, (0, 1, 2, 3)), (7, 3, ())])
    def test_a_node_has_nearly_all_stalls_or_none_is_named(self, on_first, elsewhere, named):
        found = host_stalls.stalled_ranks(stalled(shape(replicas=16), hits(on_first, elsewhere)))
        assert ranks_of(found) == named
        assert found.certainty == (1.0 if named else 0.8)

    @pytest.mark.parametrize(("often", "share"), [(6, 0.1), (12, 0.1)])
    def test_a_stall_of_half_a_step_in_five_steps_costs_a_tenth(self, often, share):
        struck = {5 * turn + 1: 0 for turn in range(often)}
        found = host_stalls.stalled_ranks(stalled(shape(replicas=512), struck, STEP / 2, steps=60))
        assert found.cost == pytest.approx(share, rel=0.05)

    @pytest.mark.parametrize(("count", "named"), [(2, None), (3, (0, 1, 2, 3))])
    def test_three_stalls_on_one_of_many_nodes_are_no_chance(self, count, named):
        assert (
            ranks_of(host_stalls.stalled_ranks(stalled(shape(replicas=512), hits(count, 0))))
            == named
        )

    @pytest.mark.parametrize(
        ("nodes", "count", "told"), [(4, 4, False), (4, 5, True), (12, 3, True), (9, 3, False)]
    )
    def test_chance_gives_one_of_the_nodes_all_stalls_once_in_a_hundred_times(
        self, nodes, count, told
    ):
        found = host_stalls.stalled_ranks(stalled(shape(replicas=4 * nodes), hits(count, 0)))
        assert (found is not None) is told

    @pytest.mark.parametrize(("count", "named"), [(2, None), (3, (0,))])
    def test_one_rank_that_has_all_stalls_is_named_where_its_node_may_have_them_by_chance(
        self, count, named
    ):
        struck = {1 + 3 * at: 0 for at in range(count)}
        found = host_stalls.stalled_ranks(stalled(shape(replicas=16, per_node=8), struck))
        assert ranks_of(found) == named

    @pytest.mark.parametrize("timing", [{"wall": True}, {}])
    def test_no_rank_is_where_each_waits_for_the_others_of_its_replica(self, timing):
        struck = {1 + 3 * at: 0 for at in range(5)}
        arranged = shape(replicas=8, tensor=2, per_node=8, **timing)
        found = host_stalls.stalled_ranks(stalled(arranged, struck))
        assert ranks_of(found) == (None if timing else (0,))

    @pytest.mark.parametrize(("many", "told"), [(6, False), (7, True)])
    def test_stalls_all_over_the_job_in_more_than_six_of_forty_steps_are_no_bad_luck(
        self, many, told
    ):
        struck = {5 * at + 1: 4 * (at % 4) for at in range(many)}
        found = host_stalls.stalled_ranks(stalled(shape(replicas=16), struck))
        assert ranks_of(found) == (() if told else None)

    @pytest.mark.parametrize(("many", "told"), [(3, False), (4, True)])
    def test_nor_are_four_stalls_in_twelve_steps(self, many, told):
        struck = {3 * at + 1: 4 * at for at in range(many)} | {30: 1}
        assert (host_stalls.stalled_ranks(stalled(shape(replicas=16), struck)) is not None) is told
        late = {3 * at + 4: 4 * at for at in range(4)}
        assert host_stalls.stalled_ranks(stalled(shape(replicas=16), late)) is None

    @pytest.mark.parametrize(("seconds", "told"), [(0.014, False), (0.016, True)])
    def test_the_newest_six_stalls_cost_some_per_mille_of_the_time(self, seconds, told):
        struck = {2 * at + 1: 4 * (at % 4) for at in range(6)} | {40: 1}
        found = host_stalls.stalled_ranks(stalled(shape(replicas=16), struck, seconds))
        assert (found is not None) is told
        assert found is None or found.cost == pytest.approx(5 * seconds / 11)

    @pytest.mark.parametrize(("mine", "named"), [(6, ()), (7, (3,))])
    def test_where_one_node_holds_the_job_the_rank_with_seven_of_ten_stalls_is_named(
        self, mine, named
    ):
        struck = {at + 1: 3 if at < mine else at - mine + 4 for at in range(10)}
        found = host_stalls.stalled_ranks(stalled(shape(per_node=8), struck))
        assert ranks_of(found) == named

    def test_on_shared_cpus_every_rank_is_stopped_now_and_then(self):
        struck = {at + 1: 4 * (at % 4) for at in range(12)}
        crowded = stalled(shape(replicas=16), struck, cpu_wait=0.011)
        assert host_stalls.stalled_ranks(crowded) is None
        assert (
            host_stalls.stalled_ranks(replace(crowded, cpu_wait=crowded.cpu_wait * 0.8)) is not None
        )


LONG = dict.fromkeys((1, 11, 21), 3)
"""The steps, counted from the newest, in which rank 3 is stopped for long."""


def paused(long, short, other=0.0, replicas=32):
    """Return a window on one node: one rank has long stalls, and others twelve short ones.

    Args:
        other: one more stall, of rank 5.
    """
    struck = {2 * at + 2: at + 6 for at in range(12)} | LONG | ({31: 5} if other else {})
    found = stalled(shape(replicas=replicas, per_node=replicas), struck, short)
    for step in LONG:
        found.spikes.longest[-step] = long
    found.spikes.longest[-31] = other
    return host_stalls.stalled_ranks(found)


class TestLongStallsAmongShortOnes:
    @pytest.mark.parametrize(("long", "named"), [(0.29, ()), (0.31, (3,))])
    def test_they_are_three_times_as_long_as_most(self, long, named):
        assert ranks_of(paused(long, 0.1)) == named

    @pytest.mark.parametrize(("other", "named"), [(0.14, (3,)), (0.16, ())])
    def test_a_stall_of_half_their_length_is_one_of_them(self, other, named):
        assert ranks_of(paused(0.3, 0.02, other)) == named

    @pytest.mark.parametrize(("replicas", "named"), [(31, ()), (32, (3,))])
    def test_chance_gives_all_three_to_one_of_the_ranks_once_in_a_thousand_times(
        self, replicas, named
    ):
        assert ranks_of(paused(0.3, 0.02, replicas=replicas)) == named


def stages(*factors, steps=16, healthy=False, part=1.0):
    """Return a window of stages that need so many times what others do, a step's length or less."""
    arranged = shape(replicas=2, pipeline=len(factors))
    before = past(arranged, stage=np.full(len(factors), part * STEP)) if healthy else None
    each = part * STEP * np.array(factors)[:, None, None]
    return view(arranged, compute=each, steps=steps, baseline=before)


def heavy(found):
    return None if found is None else found.stage


class TestStages:
    @pytest.mark.parametrize(("factor", "stage"), [(1.07, None), (1.09, 2)])
    def test_whole_layers_leave_some_per_cent_between_stages(self, factor, stage):
        assert heavy(partition_imbalance.heavy_stage(stages(1, 1, factor, 1))) == stage

    @pytest.mark.parametrize(("factor", "stage"), [(3.9, 2), (4.1, None)])
    def test_stages_further_apart_than_four_times_are_no_partition(self, factor, stage):
        assert heavy(partition_imbalance.heavy_stage(stages(1, 1, factor, 1))) == stage

    @pytest.mark.parametrize(("factor", "stage"), [(1.055, None), (1.065, 2)])
    def test_a_stage_that_grew_by_six_per_cent_since_the_start_was_given_more(self, factor, stage):
        assert (
            heavy(partition_imbalance.heavy_stage(stages(1, 1, factor, 1, healthy=True))) == stage
        )

    @pytest.mark.parametrize(("part", "stage"), [(0.55, None), (0.65, 2)])
    def test_what_saves_one_and_a_half_per_cent_of_the_step_is_told(self, part, stage):
        found = partition_imbalance.heavy_stage(stages(1, 1, 1.1, 1, part=part))
        assert heavy(found) == stage
        assert found is None or found.cost == pytest.approx(0.025 * part)

    @pytest.mark.parametrize(("steps", "stage"), [(3, None), (4, 2)])
    def test_stages_are_compared_over_four_steps(self, steps, stage):
        assert heavy(partition_imbalance.heavy_stage(stages(1, 1, 1.5, 1, steps=steps))) == stage

    @pytest.mark.parametrize(("often", "stage"), [(5, None), (7, 2)])
    def test_a_stage_is_what_it_is_in_most_of_twelve_steps(self, often, stage):
        slow = stages(1, 1, 1.5, 1)
        usual = np.where(np.arange(16)[:, None] < 16 - often, STEP, slow.stage)
        assert heavy(partition_imbalance.heavy_stage(replace(slow, stage=usual))) == stage


def unequal(more, replicas=8, leads=None, before=0.0, steps=16):
    """Return a window in which one replica needs more, another one in each step.

    Args:
        leads: in how many steps it is the first one.
    """
    ratios = np.ones((steps, replicas))
    for step in range(steps):
        first = leads is not None and step < leads
        ratios[step, 0 if first else 1 + step % (replicas - 1)] += more
    arranged = shape(replicas=replicas)
    found = view(arranged, steps=steps, baseline=past(arranged, replica_spread=before))
    return replace(found, replica=ratios, replica_long=ratios)


class TestSequences:
    @pytest.mark.parametrize(
        ("more", "before", "told"),
        [
            (0.25, 0.0, False),
            (0.26, 0.0, True),
            (0.215, 0.03, False),
            (0.225, 0.03, True),
            (0.16, 0.01, False),
            (0.17, 0.01, True),
        ],
        ids=["packed", "unequal", "as before", "twice as before", "hardly", "noticeable"],
    )
    def test_replicas_are_unequal_by_seven_per_cent_or_twice_as_much_as_before(
        self, more, before, told
    ):
        assert (
            partition_imbalance.uneven_sequences(unequal(more, before=before)) is not None
        ) is told

    @pytest.mark.parametrize(("before", "part"), [(0.0, 1.0), (0.06, 0.5), (0.08, 1.0)])
    def test_they_cost_all_of_the_lead_if_they_were_unequal_from_the_start(self, before, part):
        found = partition_imbalance.uneven_sequences(unequal(0.4, before=before))
        lead = 0.4 * (1 - 1 / 8) * COMPUTE / STEP
        ordinary = before / found.observed if part < 1 else 0.0
        assert found.cost == pytest.approx(lead * (1 - ordinary))
        assert found.cost == pytest.approx(lead * part, rel=0.1)

    @pytest.mark.parametrize(("replicas", "told"), [(2, False), (3, True)])
    def test_one_of_two_replicas_is_always_the_slow_one(self, replicas, told):
        ratios = np.ones((16, replicas))
        ratios[np.arange(16), np.arange(16) % replicas] += 0.5
        slow = replace(unequal(0.5, max(replicas, 3)), replica=ratios, replica_long=ratios)
        slow = replace(slow, shape=shape(replicas=replicas))
        assert (partition_imbalance.uneven_sequences(slow) is not None) is told

    @pytest.mark.parametrize(("replicas", "told"), [(3, False), (4, True)])
    def test_under_wall_timing_one_of_three_replicas_may_just_have_stalled(self, replicas, told):
        turns = (np.arange(16)[:, None] + np.arange(replicas)) % replicas
        dealt = 1.0 + 0.2 * turns
        slow = replace(unequal(0.5, replicas), replica=dealt, replica_long=dealt)
        assert partition_imbalance.uneven_sequences(slow) is not None
        walled = replace(slow, shape=shape(replicas=replicas, wall=True))
        assert (partition_imbalance.uneven_sequences(walled) is not None) is told

    @pytest.mark.parametrize(("leads", "told"), [(11, True), (12, False)])
    def test_whoever_leads_in_more_than_seven_of_ten_steps_is_the_culprit(self, leads, told):
        assert (partition_imbalance.uneven_sequences(unequal(0.5, 3, leads)) is not None) is told

    @pytest.mark.parametrize(("steps", "told"), [(3, False), (4, True)])
    def test_it_takes_four_steps_to_see_that_the_slowest_one_changes(self, steps, told):
        assert (
            partition_imbalance.uneven_sequences(unequal(0.5, 8, steps=steps)) is not None
        ) is told


def costs(kind, cost):
    return Candidate(kind, cost, (), -1, 2.0, 1.0)


@pytest.mark.parametrize(("cost", "stage"), [(0.29, -1), (0.31, 2)])
def test_an_uneven_stage_has_to_cost_three_times_as_much_as_uneven_sequences(
    monkeypatch, cost, stage
):
    sequences = costs("partition_imbalance", 0.1)
    uneven = replace(costs("partition_imbalance", cost), stage=2)
    monkeypatch.setattr(partition_imbalance, "uneven_sequences", lambda _: sequences)
    monkeypatch.setattr(partition_imbalance, "heavy_stage", lambda _: uneven)
    assert partition_imbalance.imbalance(view()).stage == stage


@pytest.mark.parametrize(("cost", "winner"), [(0.155, "data_loader"), (0.165, "network_link")])
def test_a_later_phase_of_the_step_explains_an_earlier_one_if_it_costs_far_more(cost, winner):
    found = cause_selection.leading_cause([costs("data_loader", 0.1), costs("network_link", cost)])
    assert found.kind == winner


def test_the_step_is_long_enough_to_tell_stalls_from_turns_of_the_scheduler():
    found = view()
    assert found.step_seconds == STEP
    assert not found.crowded
    assert replace(found, step_seconds=0.24).crowded
    assert not replace(found, step_seconds=0.26).crowded
