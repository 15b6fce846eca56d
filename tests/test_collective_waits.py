"""Who waited how long for whom, from collectives whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from flight_launches import Call, Recording
from rankscope_analyzers.profiles.flight_records import complete
from rankscope_analyzers.steps.clocks import ClockOffset


def waits(recording: Recording, tensor: dict[int, int] | None = None, **clocks: float):
    """Give the milliseconds that each rank waits in a step."""
    records = recording.records()
    if tensor is not None:
        records["tp_group"] = records["rank"].map(tensor)
    offsets = {
        int(name[1:]): ClockOffset(name, ahead, 1e-5, 0.0, 0.0) for name, ahead in clocks.items()
    }
    filled, _ = complete(records, recording.windows(), offsets, recording.ranks)
    inner = filled[filled["step"].between(1, recording.steps - 2)]
    return (inner.groupby("rank")["sync_seconds"].median() * 1e3).to_dict()


def near(**expected: float):
    return pytest.approx({int(name[1:]): value for name, value in expected.items()}, abs=0.01)


def test_peers_wait_for_the_rank_that_arrives_last() -> None:
    one = Call({0: 10.0, 1: 40.0, 2: 12.0})
    assert waits(Recording(3, [one])) == near(r0=30.0, r1=0.0, r2=28.0)


def test_lateness_that_lasts_over_ten_buckets_is_waited_for_once() -> None:
    buckets = [Call({0: 10.0 + i, 1: 40.0 + i}) for i in range(10)]
    assert waits(Recording(2, buckets)) == near(r0=30.0, r1=0.0)


def test_lateness_that_grows_from_bucket_to_bucket_is_waited_for_at_the_end() -> None:
    buckets = [Call({0: 10.0 + i, 1: 12.0 + 3 * i}) for i in range(10)]
    assert waits(Recording(2, buckets)) == near(r0=20.0, r1=0.0)


def test_two_ranks_late_in_turn_are_both_waited_for() -> None:
    """One is late at gathering, the other later at reducing."""
    gather = Call({0: 5.0, 1: 25.0, 2: 5.0}, operation="all_gather")
    reduce = Call({0: 60.0, 1: 30.0, 2: 30.0})
    assert waits(Recording(3, [gather, reduce])) == near(r0=20.0, r1=30.0, r2=50.0)


def test_collectives_that_are_under_way_at_once_are_waited_for_once() -> None:
    first = Call({0: 10.0, 1: 50.0}, group="1", operation="all_gather")
    second = Call({0: 20.0, 1: 45.0}, group="2", operation="reduce_scatter")
    assert waits(Recording(2, [first, second])) == near(r0=40.0, r1=0.0)


def test_all_reduces_of_a_tensor_parallel_group_block_each_for_itself() -> None:
    layers = [Call({0: 10.0 * i, 1: 10.0 * i + 4.0}, group="3") for i in range(1, 6)]
    recording = Recording(2, layers)
    assert waits(recording, tensor={0: 0, 1: 0}) == near(r0=20.0, r1=0.0)
    # With gradients the same times mean a rank that is 4 ms late from begin to end.
    assert waits(recording) == near(r0=4.0, r1=0.0)


def test_clock_of_another_node_is_no_lateness() -> None:
    recording = Recording(2, [Call({0: 10.0, 1: 30.0})], ahead_ms={1: 45.0})
    assert waits(recording, r1=0.045) == near(r0=20.0, r1=0.0)
    assert waits(recording)[0] > 60.0  # what an unknown offset would do


def test_durations_on_the_device_need_no_clocks() -> None:
    calls = [
        Call({0: 1.0, 1: 1.0, 2: 1.0}, durations={0: 31.0, 1: 1.0, 2: 29.0}),
        Call({0: 1.1, 1: 1.1, 2: 1.1}, durations={0: 2.0, 1: 2.0, 2: 2.0}),
        Call({0: 1.2, 1: 1.2, 2: 1.2}, durations={0: 1.0, 1: 6.0, 2: 6.0}),
    ]
    recording = Recording(3, calls, backend="nccl", ahead_ms={0: -40.0, 2: 33.0})
    assert waits(recording) == near(r0=30.0, r1=5.0, r2=33.0)


def test_groups_that_wait_at_once_on_the_device_count_once() -> None:
    calls = [
        Call({0: 1.0, 1: 1.0}, group="1", durations={0: 20.0, 1: 1.0}),
        Call({0: 1.0, 1: 1.0}, group="2", durations={0: 8.0, 1: 1.0}),
    ]
    assert waits(Recording(2, calls, backend="nccl")) == near(r0=19.0, r1=0.0)


def test_coalesced_collective_of_several_entries_is_one() -> None:
    calls = [Call({0: 10.0 + i, 1: 30.0 + i}, operation="all_gather", seq=7) for i in range(3)]
    recording = Recording(2, calls, steps=3)
    records = recording.records()
    filled, _ = complete(records, recording.windows(first=2), {}, 2)
    last = filled[(filled["step"] == 2)].set_index("rank")["sync_seconds"] * 1e3
    assert last.to_dict() == pytest.approx({0: 20.0, 1: 0.0}, abs=0.01)


def test_random_steps_agree_with_a_step_by_step_account() -> None:
    """Where collectives block, each rank goes on when the last one has come."""
    random = np.random.default_rng(11)
    for _ in range(6):
        ranks, calls, now, truth = 4, [], np.zeros(4), np.zeros(4)
        for _ in range(12):
            now = now + random.uniform(0.5, 6.0, ranks)
            arrivals = {rank: float(now[rank]) for rank in range(ranks)}
            calls.append(Call(arrivals, operation="all_gather"))
            truth += now.max() - now
            now = np.full(ranks, now.max())
        found = waits(Recording(ranks, calls, step_ms=200.0, steps=5))
        assert [found[rank] for rank in range(ranks)] == pytest.approx(truth.tolist(), abs=0.02)
