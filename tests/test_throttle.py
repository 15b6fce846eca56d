"""GPUs that deviate from their peers: which are named, which are not, and by what reason."""

from __future__ import annotations

import cProfile

import numpy as np
import pandas as pd
import pytest

from gpu_samples import BEGIN, gpu_rows, grow, samples
from rankscope_analyzers.gpus.frames import GPU_COLUMNS
from rankscope_analyzers.gpus.throttle import analyze, reason_of, seconds_lost, summarize


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("count", "nodes"), [(8, 1), (8, 4), (4, 2), (3, 1)])
def test_healthy_gpus_give_no_finding(seed, count, nodes):
    assert analyze(samples(count, 30, nodes, seed=seed)) == ()


def test_a_thermal_slowdown_is_named_with_reason_clock_and_time_lost():
    frame = samples()
    rows = gpu_rows(frame, 5)
    frame.loc[rows, "sm_clock_hertz"] = 1200e6
    frame.loc[rows, "temperature_celsius"] = 88.0
    grow(frame, rows, "hw_thermal_slowdown_seconds", 0.9)
    (found,) = analyze(frame)
    assert (found.kind, found.where.nodes[0], found.where.gpus) == (
        "thermal_slowdown",
        "node-0",
        ("5",),
    )
    assert reason_of(found) == "hw_thermal_slowdown"
    assert found.severity == "page"
    assert seconds_lost(found) == pytest.approx(59 * (1 - 1200 / 1965), rel=0.02)
    assert "1.20 GHz" in found.summary
    assert "hardware thermal slowdown 90%" in found.summary
    clock = next(at for at in found.evidence if at.source == "sm_clock_hertz")
    assert clock.observed == 1200e6
    assert clock.expected == pytest.approx(1965e6, abs=16e6)


@pytest.mark.parametrize(("less_busy", "compared"), [(0.0, True), (0.17, True), (0.24, False)])
def test_a_gpu_is_compared_with_those_that_are_as_busy_give_or_take_a_fifth(less_busy, compared):
    frame = samples()
    frame["utilization_ratio"] = 0.98
    rows = gpu_rows(frame, 5)
    frame.loc[rows, "utilization_ratio"] -= less_busy
    frame.loc[rows, "sm_clock_hertz"] = 1500e6
    assert [found.where.gpus for found in analyze(frame)] == [("5",)] * compared


def test_slowdowns_of_before_the_window_are_none_now():
    frame = samples()
    frame.loc[gpu_rows(frame, 5), "hw_thermal_slowdown_seconds"] = 50_000.0
    assert analyze(frame) == ()


def test_a_counter_that_starts_again_with_the_driver_counts_what_came_after():
    frame = samples()
    rows = gpu_rows(frame, 5)
    frame.loc[rows, "hw_thermal_slowdown_seconds"] = 5_000.0
    later = rows & (frame["time"] >= BEGIN + 30)
    frame.loc[later, "hw_thermal_slowdown_seconds"] = frame.loc[later, "time"] - BEGIN - 30
    (found,) = analyze(frame)
    assert found.kind == "thermal_slowdown"
    assert found.evidence[-1].observed == pytest.approx(29 / 59, abs=0.01)


def test_a_whole_node_that_is_too_hot_is_one_finding_with_all_its_gpus():
    frame = samples(nodes=3)
    rows = frame["node"] == "node-1"
    frame.loc[rows, "sm_clock_hertz"] = 1500e6
    grow(frame, rows, "sw_thermal_slowdown_seconds", 0.7)
    (found,) = analyze(frame)
    assert found.where.nodes[0] == "node-1"
    assert found.where.gpus == tuple(str(gpu) for gpu in range(8))
    assert reason_of(found) == "sw_thermal_slowdown"


def test_a_capped_gpu_is_told_from_peers_that_touch_their_limit_as_well():
    frame = samples()
    rows = gpu_rows(frame, 2)
    frame.loc[rows, "sm_clock_hertz"] = 1500e6
    frame.loc[rows, "power_limit_watts"] = 500.0
    grow(frame, rows, "sw_power_cap_seconds", 0.8)
    kinds = {found.kind: found for found in analyze(frame)}
    assert kinds.keys() == {"power_cap", "power_limit_differs"}
    assert kinds["power_cap"].where.gpus == ("2",)
    assert "500 W against 700 W" in kinds["power_cap"].summary


@pytest.mark.parametrize("seed", range(3))
def test_boards_at_their_power_limit_may_differ_as_silicon_does(seed):
    frame = samples(nodes=2, seed=seed)
    grow(frame, frame["gpu"] != "", "sw_power_cap_seconds", 0.8)
    random = np.random.default_rng(seed)
    for (_, _), rows in frame.groupby(["node", "gpu"]):
        frame.loc[rows.index, "sm_clock_hertz"] = 1600e6 * random.uniform(0.95, 1.03)
    assert analyze(frame) == ()


def test_a_board_that_is_far_slower_at_the_same_power_limit_is_named():
    frame = samples(nodes=2)
    grow(frame, frame["gpu"] != "", "sw_power_cap_seconds", 0.8)
    frame["sm_clock_hertz"] = 1600e6
    frame.loc[gpu_rows(frame, 3, "node-1"), "sm_clock_hertz"] = 1380e6
    (found,) = analyze(frame)
    assert (found.kind, found.where.nodes[0], found.where.gpus) == ("power_cap", "node-1", ("3",))
    assert seconds_lost(found) == pytest.approx(59 * (1 - 1380 / 1600), rel=0.02)


def test_without_counters_of_time_the_bits_of_the_looks_say_the_reason():
    frame = samples()
    for reason in ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"):
        frame[f"{reason}_seconds"] = np.nan
    rows = gpu_rows(frame, 5)
    frame.loc[rows, "sm_clock_hertz"] = 1300e6
    frame.loc[rows & (frame["time"] < BEGIN + 45), "sw_thermal_slowdown_active"] = 1.0
    (found,) = analyze(frame)
    assert (found.kind, reason_of(found)) == ("thermal_slowdown", "sw_thermal_slowdown")
    assert "software thermal slowdown 75%" in found.summary


def test_power_caps_that_differ_between_nodes_of_a_job_are_found():
    frame = samples(nodes=4)
    frame.loc[frame["node"] == "node-2", "power_limit_watts"] = 600.0
    (found,) = analyze(frame)
    assert (found.kind, found.where.nodes[0], len(found.where.gpus)) == (
        "power_limit_differs",
        "node-2",
        8,
    )
    assert found.evidence[0].observed == 600
    assert found.evidence[0].expected == 700


def test_limits_of_different_jobs_and_models_may_differ():
    one, other = samples(job="team/a"), samples(job="team/b")
    other["node"] = "node-9"
    other["power_limit_watts"] = 600.0
    mixed = samples(job="team/a")
    mixed["node"], mixed["model"], mixed["power_limit_watts"] = "node-8", "NVIDIA A100", 400.0
    mixed["sm_clock_hertz"] = 1400e6
    assert analyze(pd.concat([one, other, mixed], ignore_index=True)) == ()


def test_a_power_brake_is_a_finding_however_short():
    frame = samples()
    grow(frame, frame["node"] == "node-0", "hw_power_brake_seconds", 0.03)
    (found,) = analyze(frame)
    assert (found.kind, len(found.where.gpus)) == ("power_brake", 8)


def test_a_low_clock_without_a_reason_is_said_to_have_none():
    frame = samples()
    frame.loc[gpu_rows(frame, 7), "sm_clock_hertz"] = 1410e6
    (found,) = analyze(frame)
    assert (found.kind, reason_of(found), found.where.gpus) == ("clock_low", "", ("7",))


def test_low_power_at_the_same_clock_and_high_temperature_are_tickets():
    frame = samples()
    frame.loc[gpu_rows(frame, 1), "power_watts"] = 300.0
    frame.loc[gpu_rows(frame, 3), "temperature_celsius"] = 80.0
    found = {at.kind: at for at in analyze(frame)}
    assert found.keys() == {"power_low", "temperature_high"}
    assert found["power_low"].where.gpus == ("1",)
    assert found["temperature_high"].where.gpus == ("3",)
    assert {at.severity for at in found.values()} == {"ticket"}


def test_idle_gpus_are_nobodys_peers_and_are_not_judged():
    frame = samples()
    rows = gpu_rows(frame, 4)
    frame.loc[rows, "utilization_ratio"] = 0.0
    frame.loc[rows, "sm_clock_hertz"] = 345e6
    frame.loc[rows, "power_watts"] = 70.0
    assert analyze(frame) == ()


@pytest.mark.parametrize(
    ("watts", "held", "named"),
    [(75.0, 0.0, []), (260.0, 0.0, ["clock_low"]), (75.0, 1.0, ["thermal_slowdown"])],
)
def test_a_partitioned_gpu_is_idle_if_it_draws_next_to_nothing_of_itself(watts, held, named):
    frame = samples()
    frame["utilization_ratio"] = np.nan
    rows = gpu_rows(frame, 4)
    frame.loc[rows, "sm_clock_hertz"] = 345e6
    frame.loc[rows, "power_watts"] = watts
    frame.loc[rows, "hw_thermal_slowdown_active"] = held
    grow(frame, rows, "hw_thermal_slowdown_seconds", held)
    found = analyze(frame)
    assert [at.kind for at in found] == named
    assert {at.where.gpus for at in found} <= {("4",)}


def test_two_gpus_whose_clock_is_known_cannot_say_which_of_them_is_the_odd_one():
    frame = samples(count=3)
    frame.loc[gpu_rows(frame, 0), "sm_clock_hertz"] = np.nan
    frame.loc[gpu_rows(frame, 1), "sm_clock_hertz"] = 1200e6
    assert analyze(frame) == ()


def test_low_power_of_a_gpu_whose_clock_is_unknown_is_not_called_that_at_the_same_clock():
    frame = samples()
    rows = gpu_rows(frame, 1)
    frame.loc[rows, "power_watts"] = 300.0
    (known,) = analyze(frame)
    frame.loc[rows, "sm_clock_hertz"] = np.nan
    (unknown,) = analyze(frame)
    assert known.summary.endswith(" W at the same clock")
    assert unknown.summary.endswith(" W; its clock is unknown")


def test_two_gpus_cannot_say_which_of_them_is_the_odd_one():
    frame = samples(count=2)
    frame.loc[gpu_rows(frame, 1), "sm_clock_hertz"] = 1200e6
    assert analyze(frame) == ()


def test_two_gpus_still_say_that_one_is_too_hot():
    frame = samples(count=2)
    grow(frame, gpu_rows(frame, 1), "hw_thermal_slowdown_seconds", 0.9)
    (found,) = analyze(frame)
    assert found.kind == "thermal_slowdown"
    assert seconds_lost(found) == 0, "without peers nobody knows the clock it should have"


@pytest.mark.parametrize("column", GPU_COLUMNS[7:])
def test_what_gpus_do_not_say_is_not_judged(column):
    frame = samples()
    frame[column] = np.nan
    assert analyze(frame) == ()


def calls_for(nodes):
    frame = samples(seconds=2, nodes=nodes, job="")
    profile = cProfile.Profile()
    assert profile.runcall(analyze, frame) == ()
    return sum(entry.callcount for entry in profile.getstats())


def test_nodes_without_a_job_are_compared_together_not_one_by_one():
    calls_for(1)  # imports
    further = calls_for(30) - calls_for(10)
    assert further / 20 < 1_000, "calls for a node of 8 GPUs; pandas makes 10,000 for a group"


def test_each_node_without_a_job_is_judged_by_itself():
    frame = samples(nodes=3, job="")
    frame.loc[frame["node"] == "node-1", "sm_clock_hertz"] = 1400e6
    assert analyze(frame) == ()
    frame.loc[gpu_rows(frame, 4, "node-2"), "sm_clock_hertz"] = 1400e6
    frame.loc[gpu_rows(frame, 6, "node-0"), "power_limit_watts"] = 500.0
    found = {(at.kind, at.where.nodes, at.where.gpus) for at in analyze(frame)}
    limit = ("power_limit_differs", ("node-0",), ("6",))
    assert found == {("clock_low", ("node-2",), ("4",)), limit}


def test_empty_and_single_samples_are_fine():
    assert analyze(pd.DataFrame(columns=list(GPU_COLUMNS))) == ()
    assert analyze(samples(seconds=1)) == ()
    assert summarize(samples(seconds=1))["loaded_seconds"].eq(0).all()


def test_one_look_tells_the_reason_and_no_time():
    frame = samples(seconds=1)
    rows = gpu_rows(frame, 5)
    frame.loc[rows, "sm_clock_hertz"] = 1200e6
    frame.loc[rows, "hw_thermal_slowdown_active"] = 1.0
    (found,) = analyze(frame)
    assert (found.kind, reason_of(found)) == ("thermal_slowdown", "hw_thermal_slowdown")
    assert seconds_lost(found) == 0


def test_of_several_gpus_one_look_describes_the_slowest():
    frame = samples(seconds=1)
    for gpu, clock in ((2, 1900e6), (5, 600e6)):
        rows = gpu_rows(frame, gpu)
        frame.loc[rows, "hw_thermal_slowdown_active"] = 1.0
        frame.loc[rows, "sm_clock_hertz"] = clock
    (found,) = analyze(frame)
    assert found.where.gpus == ("2", "5")
    assert "SM clock 0.60 GHz" in found.summary
