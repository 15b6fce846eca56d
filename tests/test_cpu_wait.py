"""Ranks that wait for a CPU, on simulated jobs whose answer is known, and on a real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from probe_jobs.nurseries import Nurseries
from probe_jobs.ways import WAYS, named, records_in, run, verdict_on
from simulated_jobs import Fault, Job, diagnosed, records
from simulated_jobs import findings as found_in

STARVED = 1


def findings(job, seed=0):
    return found_in(records(job, seed))


def said(job, seed=0):
    return named(diagnosed(records(job, seed)).verdict)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_a_rank_that_waits_for_a_cpu_is_named_with_its_cost_and_as_nothing_else(ranks):
    job = Job(ranks=ranks, faults=(Fault("cpu", (STARVED,), 0.25, first_step=80),))
    (found,) = findings(job)
    assert (found.kind, found.where.ranks) == ("host_transient", (STARVED,))
    assert found.cost.lost_fraction == pytest.approx(0.25 / 1.45, abs=0.02)
    assert found.evidence[0].source == "cpu_wait_seconds"
    assert found.evidence[0].observed == pytest.approx(0.25)
    assert "waits long for a CPU" in found.summary
    assert said(job) == ("host_transient", (STARVED,))


def test_ranks_that_all_wait_for_cpus_accuse_nobody():
    everybody = Fault("cpu", tuple(range(8)), 0.5, share=0.7)
    assert said(Job(faults=(everybody,))) is None
    a_little_more = Fault("cpu", (3,), 0.3)
    assert not findings(Job(faults=(everybody, a_little_more)))


def test_all_ranks_of_a_starved_node_are_named():
    job = Job(ranks=32, faults=(Fault("cpu", tuple(range(8, 16)), 0.2),))
    (found,) = findings(job)
    assert sorted(found.where.ranks) == list(range(8, 16))


def test_on_a_crowded_node_a_rank_that_waits_as_much_more_as_it_computes_is_slow_in_computing():
    everybody = tuple(rank for rank in range(8) if rank != 5)
    crowded = (Fault("cpu", everybody, 0.5), Fault("cpu", (5,), 2.0), Fault("compute", (5,), 3.0))
    assert said(Job(faults=crowded)) == ("gpu_compute", (5,))


def test_a_rank_that_waits_for_a_cpu_for_seconds_only_may_be_unlucky():
    short = {"compute": 0.02, "data": 0.001, "transfer": 0.004}
    starved = (Fault("cpu", (STARVED,), 0.02),)
    assert said(Job(ranks=2, steps=60, **short, faults=starved)) is None
    assert said(Job(ranks=2, steps=300, **short, faults=starved)) == ("host_transient", (STARVED,))


@pytest.mark.parametrize(("kind", "cause"), [("compute", "gpu_compute"), ("data", "data_loader")])
def test_a_slow_rank_that_is_starved_a_little_keeps_its_own_cause(kind, cause):
    job = Job(faults=(Fault(kind, (5,), 0.3), Fault("cpu", (5,), 0.1, share=0.5)))
    assert said(job) == (cause, (5,))


def test_waits_that_nobody_waits_for_are_no_fault():
    rows = records(Job(faults=(Fault("cpu", (2,), 0.2),)))
    rows["sync_seconds"] = 0.15
    assert not found_in(rows)


def test_waits_that_were_not_counted_are_unknown_not_zero():
    rows = records(Job(faults=(Fault("compute", (2,), 0.2),)))
    for unknown in (rows.assign(cpu_wait_seconds=np.nan), rows.drop(columns="cpu_wait_seconds")):
        judged = diagnosed(unknown)
        assert np.isnan(judged.frame.cpu_wait).all()
        assert named(judged.verdict) == ("gpu_compute", (2,))


def test_a_real_rank_that_shares_its_cpu_with_other_programs_is_named(
    nurseries: Nurseries, tmp_path: Path
) -> None:
    (way,) = (way for way in WAYS if str(way) == "starved-cpu")
    rings = tmp_path / "rings"
    assert [ended.code for ended in run(way, STARVED, nurseries, rings)] == [0, 0]
    rows = records_in(rings)
    own = rows[rows["rank"] == STARVED]
    # It computes for 5 ms a step, and waits several times as long for its turn.
    assert own["cpu_wait_seconds"].median() > 2 * own["compute_seconds"].median()
    assert named(verdict_on(rows, way.ranks)) == ("host_transient", (STARVED,))
