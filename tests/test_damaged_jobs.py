"""Whatever is in a job's records, what is made of them is a verdict or a reason for none."""

import numpy as np
import pytest
from benchmarks.damaged_jobs import __main__ as count
from benchmarks.damaged_jobs import damages, drawn, ways

from suite_jobs import made

SEED, JOBS = 450_900, len(damages.DAMAGES)


@pytest.fixture(scope="module")
def damaged():
    return list(drawn.jobs(SEED, JOBS))


def test_nothing_raises_on_damaged_jobs_on_any_way(damaged):
    text, raised = count.report(
        (job.name, job.damages, way, result) for job in damaged for way, result in ways.results(job)
    )
    assert not raised, text
    assert {name for job in damaged for name in job.damages} == {
        damage.__name__ for damage in damages.DAMAGES
    }


@pytest.mark.parametrize("damage", damages.DAMAGES, ids=lambda damage: damage.__name__)
def test_each_damage_changes_records(damage):
    rows = drawn.wire(made(steps=30, world=8, checkpoint_period=10), "a/b")
    changed = damage(np.random.default_rng(1), rows)
    assert not changed.reset_index(drop=True).equals(rows)


def test_what_raises_is_counted_on_every_way(monkeypatch, damaged):
    def odd(*_):
        raise ZeroDivisionError("by 7")

    healthy = next(job for job in damaged if not {"few_rows"} & set(job.damages))
    monkeypatch.setattr("rankscope_analyzers.stragglers.detector.Detector.feed", odd)
    monkeypatch.setattr("rankscope_analyzers.steps.frames._executed_steps", odd)
    assert [(way, "by 7" in result.problem) for way, result in ways.results(healthy)] == [
        (way, True) for way in ways.WAYS
    ]
