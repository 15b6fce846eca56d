"""Rollouts and evaluations that take ranks unequally long are no standstills, and hide none."""

import numpy as np
import pytest

from rankscope_agent.contract.model import FLAG_EVALUATION
from simulated_jobs import START_UNIX_SECONDS, Job, findings, records

RANKS, STEPS = 8, 320
LOOP = Job(ranks=RANKS, steps=STEPS, compute=0.5, data=0.01, transfer=0.05)


def job(extra, part="compute_seconds", marked=None):
    """Return the records of a job in which ranks take `extra` (step, rank) seconds more."""
    rows = records(LOOP).sort_values(["step", "rank"]).assign(timing_source="wall")
    rows["other_seconds"] = 0.005
    if marked is not None:
        rows["flags"] = np.repeat(np.where(marked, FLAG_EVALUATION, 0), RANKS)
    longest = extra.max(axis=1, keepdims=True)
    rows[part] += extra.ravel()
    rows["sync_seconds"] += (longest - extra).ravel()
    rows["step_seconds"] += np.repeat(longest.ravel(), RANKS)
    lasted = rows["step_seconds"].to_numpy()[::RANKS]
    begin = START_UNIX_SECONDS + np.concatenate([[0.0], np.cumsum(lasted)[:-1]])
    return rows.assign(t_start_unix_seconds=np.repeat(begin, RANKS))


def every(number):
    return np.arange(STEPS) % number == number - 1


def rollouts(number, spread, seed=0, seconds=20.0):
    random = np.random.default_rng(seed)
    lengths = seconds * np.exp(spread * random.standard_normal((STEPS, RANKS)))
    return np.where(every(number)[:, None], lengths, 0.0)


def evaluations(number, others, last):
    lengths = np.full((STEPS, RANKS), others)
    lengths[:, -1] = last
    return np.where(every(number)[:, None], lengths, 0.0)


def said(rows):
    return [(one.kind, one.where.ranks) for one in findings(rows)]


@pytest.mark.parametrize("number", [4, 8, 16])
@pytest.mark.parametrize("spread", [0.2, 0.4, 0.6])
def test_rollouts_of_unequal_length_accuse_nobody(number, spread):
    found = findings(job(rollouts(number, spread, seed=number)))
    # That the work of replicas is unequal is true, and may be said.
    assert {(one.kind, one.where.ranks, one.severity) for one in found} <= {
        ("partition_imbalance", (), "ticket")
    }


@pytest.mark.parametrize("part", ["compute_seconds", "other_seconds"])
@pytest.mark.parametrize("marked", [True, False])
def test_a_rank_with_more_to_evaluate_does_not_stand_still(part, marked):
    evaluated = evaluations(40, 12.0, 30.0)
    assert said(job(evaluated, part, every(40) if marked else None)) == []


def test_a_rank_that_alone_evaluates_for_all_does_not_stand_still():
    assert said(job(evaluations(40, 0.0, 20.0), marked=every(40))) == []


@pytest.mark.parametrize("among", ["ordinary steps", "rollouts", "evaluations"])
def test_a_rank_that_stands_still_meanwhile_is_named(among):
    extra = evaluations(40, 2.0, 4.0) if among == "evaluations" else rollouts(8, 0.3, seconds=2.0)
    step = {"ordinary steps": 202, "rollouts": 207, "evaluations": 199}[among]
    extra[step, 3] = 120.0
    marked = every(40) if among == "evaluations" else None
    assert said(job(extra, marked=marked)) == [("host_transient", (3,))]
