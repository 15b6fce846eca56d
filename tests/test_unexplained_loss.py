"""That no rank is slow is the less certain the more time differences between ranks cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from free_running_jobs import computing, records, verdict
from rankscope_analyzers.reports.verdict_json import as_object, no_straggler
from rankscope_analyzers.reports.verdict_remarks import cost_of_differences
from rankscope_analyzers.stragglers.what_if import Ideal, WhatIf

STEPS, WORLD = 300, 8


def slow_in_long_steps():
    """Return the records of a job of which one rank is slow in each third step, which is long."""
    compute = computing(STEPS, WORLD)
    long = np.arange(STEPS) % 3 == 2
    compute[long] *= 5
    compute[long, 3] *= 1.3
    return records(compute)


def test_a_loss_that_no_fault_explains_lowers_the_confidence_and_is_said():
    judged = verdict(slow_in_long_steps())
    assert judged.cause is None
    assert judged.unexplained_loss > 0.1
    assert judged.confidence == pytest.approx(1 - judged.unexplained_loss)
    said = f"differences between ranks cost up to {judged.unexplained_loss:.0%} of the time"
    assert no_straggler(judged).startswith(f"no straggler was found, although {said}")
    assert said in as_object(judged)["verdict"]["summary"]


def test_a_healthy_job_loses_little_and_nothing_is_said_of_it():
    judged = verdict(records(computing(STEPS, WORLD)))
    assert judged.cause is None
    assert judged.confidence > 0.96
    assert no_straggler(judged).startswith("no straggler: no rank delays the others")


def test_what_a_fault_explains_is_no_doubt_of_it():
    compute = computing(STEPS, WORLD)
    compute[100:, 3] *= 1.4
    judged = verdict(records(compute))
    assert judged.cause is not None
    assert judged.what_if.all_equal.lost_fraction > 0.1
    assert judged.unexplained_loss == 0
    assert judged.confidence == judged.cause.confidence


@pytest.mark.parametrize(("lost", "said"), [(0.049, False), (0.051, True)])
def test_it_is_said_from_a_twentieth_on(lost, said):
    ideal = Ideal(1 / (1 - lost), lost, 1.0)
    judged = verdict(records(computing(STEPS, WORLD)))
    assert bool(cost_of_differences(replace(judged, what_if=WhatIf(ideal, ideal)))) is said


def test_what_uneven_stages_cost_is_no_delay_by_a_rank():
    uneven, none = Ideal(1.5, 1 / 3, 1.0), Ideal(1.0, 0.0, 0.0)
    judged = replace(verdict(records(computing(STEPS, WORLD))), what_if=WhatIf(uneven, none))
    assert judged.unexplained_loss == 0
