"""All attacks of a tenant at once, for some seconds, on real agents and a watch: counts alone."""

from __future__ import annotations

import pytest
from benchmarks.hostile import nodes, run, watching

SECONDS = 5.0

YIELDING = 15
"""Attackers take what other tests leave them, which is enough for each to attack many times."""

PAUSE_SECONDS = 0.005
"""Between two acts of an attacker by files, which would take all of a core. 200 a second change
every ring, log and directory while an agent looks at all of them."""

CHURN_SECONDS = 0.2
"""Between changes of pods' annotations, each of 18,000 bytes, of which two agents are told."""

INTERVAL = "--collector.interval=3"
"""Agents look a third as often as usual: each look takes all that the attackers made."""

SCRAPE_SECONDS = LOOK_SECONDS = 2.0
"""Between requests of agents and of the watch, which ask for a page of all attackers' series."""

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
        patch.setattr(run, "PAUSE_SECONDS", PAUSE_SECONDS)
        patch.setattr(run, "SCRAPE_SECONDS", SCRAPE_SECONDS)
        patch.setattr(run, "LOOK_SECONDS", LOOK_SECONDS)
        patch.setattr(nodes, "CHURN_SECONDS", CHURN_SECONDS)
        patch.setattr(run, "ATTACKED_BY_FILES", ATTACKED_BY_FILES)
        patch.setattr(nodes, "BCRYPT_ROUNDS", BCRYPT_ROUNDS)
        patch.setattr(watching, "PATIENCE_SECONDS", PATIENCE_SECONDS)
        return run.measure(SECONDS, INTERVAL)


def test_all_attacks_at_once_cost_other_jobs_nothing_that_is_not_said(attacked):
    """How soon everything is there depends on what else runs: that is the benchmark's to say."""
    assert run.faults_at_any_load(attacked) == [], run.report(attacked)


def test_meanwhile_everybody_was_asked(attacked):
    seen = attacked.seen
    assert min(seen.probes, seen.scrapes, seen.looks, seen.late_job_seconds) > 0
    assert {job["files"] for job in attacked.jobs.values()} == {run.RANKS}
