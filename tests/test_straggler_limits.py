"""Limits of incidents, kept states, means and ideals of stragglers: at each and beyond it."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope_analyzers.stragglers import state
from rankscope_analyzers.stragglers.incidents import IncidentStore, Moment
from rankscope_analyzers.stragglers.kept_steps import flattened
from rankscope_analyzers.stragglers.step_averaging import StepAverager
from rankscope_analyzers.stragglers.view import Candidate
from rankscope_analyzers.stragglers.what_if import _ideal


def candidate(rank=3, cost=0.1, certainty=1.0):
    return Candidate("gpu_compute", cost, (rank,), -1, 2.0, 1.0, certainty=certainty)


def opened(store, rank=3, at=0.0):
    return store.open(candidate(rank), at, Moment(at, at), ("n",))


@pytest.mark.parametrize(("evaluations", "incidents"), [(15, 1), (16, 2)])
def test_a_cause_that_returns_within_fifteen_evaluations_reopens_its_incident(
    evaluations, incidents
):
    store = IncidentStore()
    store.close(opened(store), 1.0)
    for _ in range(evaluations):
        store.next_evaluation()
    opened(store)
    assert len(store.incidents) == incidents


def test_128_incidents_are_kept_and_64_of_them_can_be_reopened():
    store = IncidentStore()
    for rank in range(70):
        store.close(opened(store, rank), 1.0)
    for rank in range(70):
        opened(store, rank)
    assert len(store.incidents) == 70 + 6
    store = IncidentStore()
    for rank in range(200):
        store.close(opened(store, rank), 1.0, for_good=True)
    assert len(store.incidents) == 128


@pytest.mark.parametrize(
    ("cost", "certainty", "confidence"),
    [(0.0, 1.0, 0.4), (0.1, 1.0, 0.48), (0.1, 0.5, 0.24), (0.7, 1.0, 0.8)],
)
def test_a_costlier_fault_is_surer_and_none_is_certain_by_timing_alone(cost, certainty, confidence):
    store = IncidentStore()
    number = store.open(candidate(3, cost, certainty), 0.0, Moment(0.0, 0.0), ("n",))
    assert store[number].confidence == pytest.approx(confidence)


def nested(levels):
    found = {"list": []}
    for _ in range(levels):
        found = {"list": [found]}
    return {"version": 1, "state": found}


@pytest.mark.parametrize(("levels", "taken"), [(64, True), (65, False)])
def test_a_state_has_64_levels(levels, taken):
    if taken:
        assert len(state.loaded(nested(levels))) == 1
        return
    with pytest.raises(state.StateError, match="stands for nothing"):
        state.loaded(nested(levels))


def test_a_state_of_another_version_is_refused():
    assert state.document([])["version"] == 1
    with pytest.raises(state.StateError, match="version 2, expected 1"):
        state.loaded({"version": 2, "state": None})


@pytest.mark.parametrize(("seconds", "steps"), [(0.124, 2), (0.125, 1), (0.0626, 2), (0.04, 4)])
def test_steps_are_averaged_until_they_have_lasted_an_eighth_of_a_second(seconds, steps):
    several = flattened({"step": np.ones(steps)})
    (means,) = StepAverager().add(several, [seconds] * steps)
    assert means.completed_by == [steps - 1]


def test_what_only_some_steps_know_is_averaged_over_these():
    averager = StepAverager()
    assert not any(one.completed_by for one in averager.add(flattened({"a": np.ones(1)}), [0.1]))
    later = flattened({"b": np.full(3, 2.0), "a": np.full(3, 3.0)})
    first, second = averager.add(later, [0.1, 0.1, 0.1])
    assert {name: of.tolist() for name, of in first.quantities.items()} == {"a": [2.0], "b": [2.0]}
    assert (first.completed_by, second.completed_by) == ([0], [2])
    assert list(second.quantities) == ["b", "a"]


@pytest.mark.parametrize(("total", "known"), [(0.99e12, True), (1e12, False)])
def test_thirty_thousand_years_of_steps_have_no_ideal(total, known):
    found = _ideal(np.array([total]), np.array([total / 2]), 4)
    assert (found is not None) is known


def test_lost_time_is_counted_in_hours_of_all_gpus():
    found = _ideal(np.array([7200.0]), np.array([3600.0]), 4)
    assert (found.slowdown, found.lost_fraction, found.gpu_hours) == (2.0, 0.5, 4.0)
