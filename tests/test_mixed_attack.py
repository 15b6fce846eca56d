"""All attacks of a tenant at once, for twenty seconds, on real agents and a watch: counts alone."""

from __future__ import annotations

import os

import pytest
from benchmarks.hostile import run

SECONDS = 20.0

PATIENT = "--collector.deadline=60"
"""Two agents, a watch, two jobs and 13 attackers share what other tests leave of this machine: how
long a run of a collector takes is measured by `python -m benchmarks hostile`, and not here."""


def others_load() -> str:
    """Return why the machine is too busy for this test, empty if it is not."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    busy = f"load {load:.1f} on {cores} cores: what others do here would be counted as the attack's"
    return busy if load > cores else ""


@pytest.mark.skipif(bool(others_load()), reason=others_load())
def test_all_attacks_at_once_cost_other_jobs_nothing():
    result = run.measure(SECONDS, PATIENT)
    assert run.faults(result) == [], run.report(result)
    assert result.seen.probes > 0
    assert result.seen.scrapes > 0
    assert len(result.seen.evaluations) > 1
