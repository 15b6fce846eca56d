"""All attacks of a tenant at once, for some seconds, on real agents and a watch: counts alone."""

from __future__ import annotations

import pytest
from benchmarks.hostile import nodes, run, watching

SECONDS = 5.0

YIELDING = 15
"""Attackers take what other tests leave them, which is enough for each to attack many times."""

NAMES = {"names": ["16"]}
"""Files in each volume but one. Making 4,096 in all of them, and reading their names in each look,
is most of what the benchmark takes."""

ATTACKED_BY_FILES = 1
"""What the files of pods cost an agent, they cost each; the other one has the rest of the job."""

BCRYPT_ROUNDS = 4
"""Wrong passwords take a third of an agent's time otherwise; tests/test_web_attacks.py has usual
ones."""

PATIENCE_SECONDS = 600.0
"""Other tests run meanwhile, beside two agents, a watch, two jobs and nine attackers."""


@pytest.fixture(scope="module")
def attacked() -> run.Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "START_SECONDS", PATIENCE_SECONDS)
        patch.setattr(run, "YIELDING", YIELDING)
        patch.setattr(run, "COUNTS", NAMES)
        patch.setattr(run, "ATTACKED_BY_FILES", ATTACKED_BY_FILES)
        patch.setattr(nodes, "BCRYPT_ROUNDS", BCRYPT_ROUNDS)
        patch.setattr(watching, "PATIENCE_SECONDS", PATIENCE_SECONDS)
        return run.measure(SECONDS)


def test_all_attacks_at_once_cost_other_jobs_nothing_that_is_not_said(attacked):
    """How soon everything is there depends on what else runs: that is the benchmark's to say."""
    assert run.faults_at_any_load(attacked) == [], run.report(attacked)


def test_meanwhile_everybody_was_asked(attacked):
    seen = attacked.seen
    assert min(seen.probes, seen.scrapes, seen.looks, seen.late_job_seconds) > 0
    assert {job["files"] for job in attacked.jobs.values()} == {run.RANKS}
