"""Conclusions about groups and the whole job, which need the job's own beginning."""

import numpy as np
import pytest

from rankscope_analyzers.steps import frames
from rankscope_analyzers.stragglers.running import global_slowdown, network_link
from simulated_jobs import Fault, Job, records

EVERYBODY = tuple(range(8))


def frame(job, seed=0):
    return frames.build("job", records(job, seed))


def test_all_ranks_computing_longer_is_a_global_slowdown():
    job = frame(Job(faults=(Fault("compute", EVERYBODY, 0.4, first_step=100),)))
    (found,) = global_slowdown.analyze(job)
    assert found.subject.ranks == ()
    assert found.cost.lost_fraction == pytest.approx(0.4 / 1.59, abs=0.02)
    assert "1.4" in found.summary
    assert not network_link.analyze(job)


def test_a_slow_fabric_is_a_global_slowdown_of_the_exchange():
    job = frame(Job(faults=(Fault("transfer", EVERYBODY, 0.4, first_step=100),)))
    (found,) = global_slowdown.analyze(job)
    assert "exchanging gradients" in found.summary
    assert not network_link.analyze(job)


def test_one_slow_group_of_four_is_a_network_link():
    job = frame(Job(ranks=32, groups=4, faults=(Fault("transfer", (1,), 0.4, first_step=100),)))
    (found,) = network_link.analyze(job)
    assert found.subject.ranks == ()
    assert "1 of 4 gradient groups" in found.summary
    assert not global_slowdown.analyze(job)


def test_the_rank_that_leaves_the_slow_exchange_last_is_named():
    rows = records(Job(faults=(Fault("transfer", EVERYBODY, 0.4, first_step=100),)))
    late = (rows["rank"] == 5) & (rows["step"] >= 100)
    rows["step_seconds"] += 0.05  # the barrier that all leave together
    rows.loc[late, "sync_seconds"] += 0.03
    (found,) = network_link.analyze(frames.build("job", rows))
    assert found.subject.ranks[0] == 5


def test_a_late_rank_does_not_look_like_a_slow_exchange():
    job = frame(Job(faults=(Fault("compute", (2,), 0.6, first_step=100),)))
    assert not network_link.analyze(job)
    assert not global_slowdown.analyze(job)


def test_a_slowdown_of_a_few_seconds_is_not_reported():
    fault = Fault("compute", EVERYBODY, 0.02, first_step=400, last_step=600)
    job = Job(steps=1500, compute=0.03, data=0.001, transfer=0.004, faults=(fault,))
    assert not global_slowdown.analyze(frame(job))


def test_a_trace_without_a_healthy_beginning_has_nothing_to_compare_with():
    job = frame(Job(steps=30, faults=(Fault("compute", EVERYBODY, 0.4, first_step=20),)))
    assert not global_slowdown.analyze(job)
    assert not network_link.analyze(job)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_a_healthy_job_is_not_slow(seed, noise):
    job = frame(Job(noise=noise, steps=300), seed)
    assert not network_link.analyze(job)
    assert not global_slowdown.analyze(job)


def test_unmeasured_sync_gives_no_network_finding():
    rows = records(Job(faults=(Fault("transfer", EVERYBODY, 0.4, first_step=100),)))
    rows["sync_seconds"] = np.nan
    job = frames.build("job", rows)
    assert not network_link.analyze(job)
    assert not global_slowdown.analyze(job)
