"""Simulated jobs as running ones: rings say what a job did, and one answer per job is scored."""

import numpy as np
import pandas as pd
import pytest
from benchmarks.straggler_suite import final, running
from benchmarks.straggler_suite.rings import placed, rank_rings

from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource
from suite_jobs import fault, made

SHIFT = 1000.0


def rows_read(folder, simulated, extended=True):
    """Return what an agent reads of a simulated job's rings."""
    folder.mkdir()
    with placed([(folder, ring) for ring in rank_rings(simulated, SHIFT, extended)]):
        source = RingStepSource(folder, folder / "kubelet", "elsewhere")
        rows = pd.DataFrame(list(source.steps(None, 0.0)), columns=list(STEP_COLUMNS))
        return rows, source.ranks()


def same_steps(rows, simulated):
    """Return what was simulated, in the order of what was read."""
    begun = np.round(rows["t_start_unix_seconds"] - SHIFT, 6)
    read = rows.assign(t_start_unix_seconds=begun).set_index(["rank", "t_start_unix_seconds"])
    meant = simulated.records.set_index(["rank", "t_start_unix_seconds"])
    return read.sort_index(), meant.sort_index()


@pytest.mark.parametrize("timing", ["kernel", "wall", "blocked"])
def test_an_agent_reads_what_was_simulated(tmp_path, timing):
    simulated = made(fault("gpu_compute", "gpu", 1.5), timing=timing, silent_node=1, dark=3)
    rows, ranks = rows_read(tmp_path / "rings", simulated)
    read, meant = same_steps(rows, simulated)
    assert len(read) == len(meant)
    for name in ("step", "gpu", "dp_group", "tp_group", "pp_stage"):
        assert (read[name].to_numpy() == meant[name].to_numpy()).all(), name
    for name in ("step_seconds", "data_seconds", "sync_seconds"):
        assert read[name].to_numpy() == pytest.approx(meant[name].to_numpy()), name
    assert (read["node"] == "job-a-" + meant["node"]).all()
    assert {rank.rank for rank in ranks} == set(range(32)) - {3}
    assert {rank.world_size for rank in ranks} == {32}
    assert {rank.alive for rank in ranks} == {True}
    assert set(rows["timing_source"]) == {"kernel" if timing == "kernel" else "wall"}


@pytest.mark.parametrize("timing", ["kernel", "wall", "blocked"])
def test_a_new_probe_keeps_the_rest_of_a_step_apart_and_counts_micro_batches(tmp_path, timing):
    simulated = made(fault("host_transient", "noisy_host", 0.5, duty=0.3), timing=timing)
    read, meant = same_steps(rows_read(tmp_path / "rings", simulated)[0], simulated)
    assert read["compute_seconds"].to_numpy() == pytest.approx(meant["compute_seconds"].to_numpy())
    parts = meant["data_seconds"] + meant["compute_seconds"] + meant["sync_seconds"]
    rest = np.maximum(meant["step_seconds"] - parts, 0)
    assert read["other_seconds"].to_numpy() == pytest.approx(rest.to_numpy(), abs=3e-6)
    assert (rest > 0.01).all()  # the optimizer
    assert set(read["microbatches"]) == {8}
    waits = read["cpu_wait_seconds"]
    assert waits.isna().all() if timing == "kernel" else (waits == 0).all()


def test_an_old_probe_calls_the_rest_of_a_step_compute_unless_it_times_kernels(tmp_path):
    by_kernels = made(fault("gpu_compute", "gpu", 1.5), timing="kernel")
    read, meant = same_steps(rows_read(tmp_path / "a", by_kernels, extended=False)[0], by_kernels)
    assert read["compute_seconds"].to_numpy() == pytest.approx(meant["compute_seconds"].to_numpy())
    by_clock = made(fault("gpu_compute", "gpu", 1.5), timing="wall")
    read, meant = same_steps(rows_read(tmp_path / "b", by_clock, extended=False)[0], by_clock)
    rest = meant["step_seconds"] - meant["data_seconds"] - meant["sync_seconds"]
    assert read["compute_seconds"].to_numpy() == pytest.approx(rest.to_numpy(), abs=2e-6)
    assert (rest > 1.001 * meant["compute_seconds"]).all()  # the optimizer is in it


def test_after_a_restart_other_processes_write_other_rings(tmp_path):
    simulated = made(restart=120, shrinks=True, steps=220)
    rows, ranks = rows_read(tmp_path / "rings", simulated)
    assert sorted(rows["attempt"].unique()) == [0, 1]
    assert rows.groupby("attempt")["rank"].nunique().to_dict() == {0: 32, 1: 24}
    assert {rank.rank for rank in ranks} == set(range(24))
    assert {(rank.attempt, rank.world_size, rank.alive) for rank in ranks} == {(1, 24, True)}
    second = rows[rows["attempt"] == 1]
    assert second["step"].min() == 100  # the last checkpoint
    assert second["t_start_unix_seconds"].min() > simulated.attempts[1].begin_unix_seconds + 999


def job(name, nodes):
    """Return a job without records, on nodes with so many rings."""
    rings = [running.RankRing(node, {}, b"", b"", ended=False) for node in nodes]
    return running.Running(name, name, {}, rings, 0.0)


def test_a_node_has_one_agent_and_no_agent_more_rings_than_it_reads():
    jobs = [
        job(f"job-{n}", [f"{n}-{node}" for node in range(9) for _ in range(16)]) for n in range(7)
    ]
    found = list(running.batches(jobs))
    assert [[one.name for one, _ in batch] for batch in found] == [
        ["job-0", "job-1", "job-2"], ["job-3", "job-4", "job-5"], ["job-6"],
    ]  # fmt: skip
    for batch in found:
        agents = [places[ring.node] for one, places in batch for ring in one.rings]
        assert max(np.bincount(agents)) <= running.RINGS_OF_AN_AGENT
        assert max(agents) < running.AGENTS


def test_a_job_that_no_batch_can_hold_is_refused():
    with pytest.raises(ValueError, match="job-x has 528 rings, room is for 512"):
        list(running.batches([job("job-x", [str(node) for node in range(33) for _ in range(16)])]))


LABELS = {
    "job_start_unix": 100.0, "wall_seconds": 200.0, "median_step_seconds": 1.0, "timing": "wall",
    "exec_end_unix": [float(end) for end in range(101, 301)], "world_size": 8, "subtypes": ["gpu"],
    "faults": [{
        "class": "gpu_compute", "start_unix": 150.0, "end_unix": 200.0, "start_exec": 50,
        "accept_ranks": [3], "culprit_ranks": [3], "culprit_stage": -1, "lost_fraction": 0.2,
        "detectable": True, "gpu_hours_lost": 1.0,
    }],
}  # fmt: skip
HEALTHY = LABELS | {"faults": [], "subtypes": []}


def answer(kind="gpu_compute", ranks=(3,), since=None, until=None, hours=None):
    verdict = {"class": kind, "ranks": list(ranks), "lost_fraction": 0.25, "gpu_hours_lost": hours}
    return {"verdict": verdict | {"since_unix_seconds": since, "until_unix_seconds": until}}


def scored(labels, *reported):
    outcome = final.Outcome()
    for number, one in enumerate(reported):
        outcome.add(f"job-{number}", labels, one, SHIFT, "it fell over\nKeyError: 'x'")
    return outcome, final.scores(outcome)


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [(1160, None, 1), (1160, 1190, 1), (None, 1151, 1), (1120, 1140, 0), (1225, None, 0)],
)
def test_a_final_verdict_is_about_the_time_that_it_names(since, until, found):
    outcome, scores = scored(LABELS, answer(since=since, until=until))
    assert scores["recall"] == scores["precision"] == scores["top-1 end to end"] == found
    assert bool(final.wrong(outcome)) is (found == 0)


def test_a_final_verdict_belongs_to_the_fault_of_its_class_where_two_overlap():
    other = LABELS["faults"][0] | {"class": "data_loader", "accept_ranks": [5], "start_unix": 160.0}
    both = LABELS | {"faults": [*LABELS["faults"], other], "subtypes": ["gpu", "rank"]}
    outcome, _ = scored(both, answer("data_loader", (5,)))
    ((_, fault, _),) = outcome.tally().matched
    assert fault["class"] == "data_loader"


def test_accused_healthy_jobs_are_counted():
    outcome, scores = scored(HEALTHY, answer(None, ()), answer("host_transient", ()))
    assert (scores["healthy"], scores["accused"], scores["unjudged"]) == (2, 1, 0)
    assert final.wrong(outcome) == [
        "job-1: expected nothing (wall, 8 ranks), got host_transient costing 0.250"
    ]


@pytest.mark.parametrize(
    ("reported", "factor"), [((2.0, 0.5), 2.0), ((1.0, 4.0), 2.0), ((3.0, None), 3.0)]
)
def test_hours_are_off_by_the_mean_factor_in_either_direction(reported, factor):
    _, scores = scored(LABELS, *(answer(hours=hours) for hours in reported))
    assert scores["GPU hours off by"] == pytest.approx(factor)


def test_a_job_without_an_answer_is_missed_and_named():
    outcome, scores = scored(LABELS, None)
    assert (scores["recall"], scores["unjudged"]) == (0.0, 1)
    assert final.wrong(outcome) == ["job-0: not judged: KeyError: 'x'"]


def test_a_user_is_told_of_a_slow_gpu_by_an_agent_that_reads_the_rings():
    slow = made(
        fault("gpu_compute", "gpu", 1.6, last=220), world=16, tensor=1, pipeline=1, name="job-s"
    )
    fine = made(world=16, tensor=1, pipeline=1, name="job-f")
    reported = list(running.answers(map(running.running, (slow, fine)), "1h"))
    outcome = final.Outcome()
    for one in reported:
        outcome.add(one.job.name, one.job.labels, one.reported, one.job.shift, one.problem)
    assert final.wrong(outcome) == []
    assert outcome.reported["job-s"]["verdicts"][0]["ranks"] == [13]
