"""Conclusions that name ranks, on simulated jobs whose answer is known."""

import pytest

from simulated_jobs import Fault, Job, records
from simulated_jobs import findings as found_in


def findings(job, seed=0):
    return found_in(records(job, seed))


@pytest.mark.parametrize("rank", [0, 5, 7])
@pytest.mark.parametrize("ranks", [8, 64])
def test_a_rank_that_computes_longer_is_named_with_its_cost(rank, ranks):
    job = Job(ranks=ranks, faults=(Fault("compute", (rank,), 0.25, first_step=80),))
    (found,) = findings(job)
    assert found.kind == "gpu_compute"
    assert found.where.ranks == (rank,)
    assert [place.gpu for place in found.where.culprits] == [str(rank % 8)]
    assert found.cost.lost_fraction == pytest.approx(0.25 / 1.45, abs=0.02)
    assert found.until_unix_seconds is None


def test_the_fault_starts_when_it_started_and_ends_when_it_ended():
    fault = Fault("compute", (3,), 0.5, first_step=80, last_step=120)
    rows = records(Job(faults=(fault,)))
    begin = rows.query("step == 80")["t_start_unix_seconds"].min()
    end = rows.query("step == 120")["t_start_unix_seconds"].min()
    (found,) = found_in(rows)
    assert found.since_unix_seconds == pytest.approx(begin, abs=3.0)
    assert found.until_unix_seconds == pytest.approx(end, abs=3.0)


def test_a_rank_that_was_born_slow_is_not_excused_by_its_past():
    (found,) = findings(Job(faults=(Fault("compute", (6,), 0.2),)))
    assert found.where.ranks == (6,)


def test_healthy_differences_between_gpus_accuse_nobody():
    assert not findings(Job(faults=(Fault("compute", (6,), 0.03),)))


def test_a_gpu_that_throttles_now_and_then_is_one_fault():
    job = Job(steps=300, faults=(Fault("compute", (2,), 0.4, 60, 260, share=0.5),))
    (found,) = findings(job)
    assert found.where.ranks == (2,)
    assert found.cost.lost_fraction == pytest.approx(0.5 * 0.4 / (1.19 + 0.2), abs=0.04)


def test_a_slow_node_names_all_its_ranks_and_no_others():
    job = Job(ranks=32, faults=(Fault("compute", tuple(range(8, 16)), 0.2),))
    (found,) = findings(job)
    assert sorted(found.where.ranks) == list(range(8, 16))
    assert set(found.where.nodes) == {"node-00001"}


def test_half_of_the_ranks_of_one_node_are_named_if_they_are_plainly_slow():
    def said(*ranks, seconds, ranks_per_node=8):
        fault = Fault("compute", ranks, seconds)
        found = findings(Job(ranks=4, ranks_per_node=ranks_per_node, faults=(fault,)))
        return [sorted(one.where.ranks) for one in found]

    assert said(1, 3, seconds=0.3) == [[1, 3]]
    assert said(1, 3, seconds=0.09) == []
    assert said(2, 3, seconds=0.09, ranks_per_node=2) == [[2, 3]]


def test_a_rank_that_is_late_by_less_than_a_turn_of_the_scheduler_is_not_accused():
    milliseconds = {"compute": 0.003, "data": 0.004, "transfer": 0.01, "steps": 600}
    assert not findings(Job(**milliseconds, faults=(Fault("compute", (1,), 0.002),)))
    assert findings(Job(**milliseconds, faults=(Fault("compute", (1,), 0.006),)))


def test_two_ranks_are_enough_to_compare():
    (found,) = findings(Job(ranks=2, faults=(Fault("compute", (1,), 0.3),)))
    assert found.where.ranks == (1,)


def test_when_everybody_is_slow_nobody_is_named():
    slow_for_all = Fault("compute", tuple(range(8)), 0.5, first_step=100)
    assert [found.kind for found in findings(Job(faults=(slow_for_all,)))] == ["global_slowdown"]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("noise", "ranks"), [(0.01, 8), (0.3, 4), (0.5, 2), (0.1, 128)])
def test_noise_accuses_nobody(seed, noise, ranks):
    job = Job(ranks=ranks, noise=noise, compute=0.05, data=0.004, transfer=0.01, steps=400)
    assert not findings(job, seed)


def test_a_rank_that_lacks_the_waiting_peers_is_not_accused():
    rows = records(Job(faults=(Fault("compute", (4,), 0.3),)))
    rows["sync_seconds"] = 0.15  # nobody waits for rank 4: its excess was hidden behind something
    assert not found_in(rows)


def test_slow_input_is_a_data_finding_and_not_a_compute_finding():
    job = Job(faults=(Fault("data", (3,), 0.3, first_step=50),))
    (found,) = findings(job)
    assert (found.kind, found.where.ranks) == ("data_loader", (3,))
    assert found.summary.startswith("rank 3 (node node-00000, GPU 3) waits 15.")


def test_input_that_stutters_now_and_then_is_not_a_slow_loader():
    assert not findings(Job(faults=(Fault("data", (3,), 0.6, share=0.05),)))


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_workers_that_deliver_together_are_a_slow_loader(workers):
    rows = records(Job(steps=400))
    waits = (rows["rank"] == 3) & (rows["step"] % workers == 0)
    rows.loc[waits, "data_seconds"] += 0.2 * workers
    rows.loc[rows["step"] % workers == 0, "step_seconds"] += 0.2 * workers
    rows.loc[~waits & (rows["step"] % workers == 0), "sync_seconds"] += 0.2 * workers
    (found,) = found_in(rows)
    assert found.where.ranks == (3,)
    assert found.cost.lost_fraction == pytest.approx(0.2 / 1.38, abs=0.03)


def test_evidence_shows_the_waiting_and_the_useless_step_time():
    (found,) = findings(Job(faults=(Fault("compute", (1,), 0.5),)))
    compute, sync, step = found.evidence
    assert compute.observed == pytest.approx(compute.expected + 0.5, abs=0.02)
    assert sync.observed == pytest.approx(sync.expected - 0.5, abs=0.02)
    assert step.observed == pytest.approx(step.expected, rel=0.001)


def test_unmeasured_compute_gives_no_compute_finding():
    rows = records(Job(faults=(Fault("compute", (1,), 0.5),)))
    rows[["compute_seconds", "sync_seconds"]] = float("nan")
    assert not found_in(rows)


def test_a_rank_that_goes_dark_is_not_convicted():
    rows = records(Job(faults=(Fault("compute", (1,), 0.5, first_step=100),)))
    dark = rows.query("not (rank == 1 and step >= 100)")
    assert not any(found.where.ranks for found in found_in(dark))
