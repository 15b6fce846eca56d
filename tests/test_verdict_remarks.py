"""What is remarked beside a verdict, and what is too little to be remarked."""

from types import SimpleNamespace

import pytest

from rankscope_analyzers.findings.finding import Where
from rankscope_analyzers.reports import verdict_remarks
from rankscope_analyzers.steps.clocks import ClockOffset
from rankscope_analyzers.stragglers.naive import NaiveAnswer


def ideal(lost):
    return SimpleNamespace(lost_fraction=lost, slowdown=1 / (1 - lost), gpu_hours=lost)


@pytest.mark.parametrize(("apart", "both"), [(0.004, False), (0.006, True)])
def test_two_ideals_are_told_apart_from_half_a_per_cent_of_the_step_on(apart, both):
    ideals = SimpleNamespace(all_equal=ideal(0.2), stage_weights_kept=ideal(0.2 - apart))
    (said,) = verdict_remarks.what_if(SimpleNamespace(what_if=ideals))
    assert ("with its stages as they are" in said) is both


@pytest.mark.parametrize(("seconds", "told"), [(0.0049, False), (0.0051, True), (-0.006, True)])
def test_a_clock_that_is_off_by_five_milliseconds_misleads_who_compares_logs(seconds, told):
    offsets = (ClockOffset("gpu-1", seconds, 1e-5, 0.0, 0.0), ClockOffset("gpu-2", 0.0, 1e-5, 0, 0))
    said = list(verdict_remarks.clocks(SimpleNamespace(clock_offsets=offsets)))
    assert bool(said) is told
    assert not told or "gpu-1" in said[0]


@pytest.mark.parametrize(
    ("blamed", "spread", "culprits", "told"),
    [
        (3, 0.01, (2,), True),
        (2, 0.01, (2,), False),
        (2, 0.01, (1, 2), False),
        (2, 0.01, None, True),
        (3, 0.0005, (2,), True),
        (3, 0.00049, (2,), False),
        (None, 0.0, (2,), False),
    ],
)
def test_step_times_are_said_to_mislead_if_they_do(blamed, spread, culprits, told):
    verdict = SimpleNamespace(
        naive=NaiveAnswer(blamed, spread),
        cause=None if culprits is None else SimpleNamespace(where=Where(ranks=culprits)),
    )
    assert bool(list(verdict_remarks.naive(verdict))) is told
