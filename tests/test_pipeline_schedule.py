"""The closed form of the 1F1B schedule against the schedule played micro-batch by micro-batch."""

import numpy as np
import pytest

from rankscope_analyzers.stragglers.pipeline import gradients_ready, stage_weights


def played(busy, microbatches):
    """Return when each stage's last backward ends, by playing the 1F1B order of every stage."""
    stages = len(busy)
    forward, backward = busy / microbatches / 3, busy / microbatches * 2 / 3
    done = {}
    orders = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, microbatches)
        order = [("f", i) for i in range(ahead)]
        for i in range(microbatches - ahead):
            order += [("f", ahead + i), ("b", i)]
        orders.append(order + [("b", i) for i in range(microbatches - ahead, microbatches)])
    clocks, places = np.zeros(stages), [0] * stages
    while any(place < 2 * microbatches for place in places):
        for stage in range(stages):
            while places[stage] < 2 * microbatches:
                kind, i = orders[stage][places[stage]]
                source = stage - 1 if kind == "f" else stage + 1
                needed = (kind, i, source) if 0 <= source < stages else None
                if needed and needed not in done:
                    break
                length = forward[stage] if kind == "f" else backward[stage]
                clocks[stage] = max(clocks[stage], done.get(needed, 0.0)) + length
                done[kind, i, stage] = clocks[stage]
                places[stage] += 1
    return clocks


@pytest.mark.parametrize("microbatches", [4, 8, 16])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_the_closed_form_follows_the_schedule(stages, microbatches):
    random = np.random.default_rng(stages * 100 + microbatches)
    errors = []
    for _ in range(30):
        busy = random.uniform(0.8, 1.4, stages)
        closed = gradients_ready(np.zeros((stages, 1)), busy[:, None], microbatches)[:, 0]
        errors.append(closed[0] / played(busy, microbatches)[0] - 1)
    assert abs(np.mean(errors)) < 0.02
    assert np.max(np.abs(errors)) < 0.06


@pytest.mark.parametrize("microbatches", [4, 8, 16])
@pytest.mark.parametrize(
    "weights",
    [
        (1.0, 1.0, 1.0, 1.0), (1.0, 1.4, 1.0, 1.0), (1.0, 1.0, 1.0, 1.4), (1.4, 1.0, 1.0, 1.0),
        (1.0, 1.0), (1.3, 1.0), (1.0, 1.3), (1.0,),
    ],
)  # fmt: skip
def test_stage_weights_come_back_from_when_stages_end(weights, microbatches):
    """In each replica by itself, whatever its sequences and its input."""
    random = np.random.default_rng(microbatches)
    lengths = random.uniform(0.8, 1.2, (5, 1, 6))
    busy = np.array(weights)[None, :, None] * lengths
    arrival = random.uniform(0.0, 0.02, busy.shape)
    ready = gradients_ready(arrival, busy, microbatches)
    assert stage_weights(arrival, ready, microbatches) == pytest.approx(busy, rel=1e-9)


@pytest.mark.parametrize("microbatches", [8, 16])
@pytest.mark.parametrize("stages", [2, 4])
def test_where_the_closed_form_errs_the_last_stage_looks_heavier_and_no_other_one(
    stages, microbatches
):
    """So that no first stage is called heavy on account of it."""
    random = np.random.default_rng(stages)
    for _ in range(30):
        busy = random.uniform(0.97, 1.03, stages)
        ready = played(busy, microbatches)[:, None]
        found = stage_weights(np.zeros_like(ready), ready, microbatches)[:, 0]
        assert found[:-1] == pytest.approx(busy[:-1])
        assert found[-1] > 0.999 * busy[-1]


def test_the_weights_of_a_silent_stage_are_unknown_and_no_others():
    ready = gradients_ready(np.zeros((3, 2)), np.ones((3, 2)), 8)
    ready[1, 1] = np.nan
    found = stage_weights(np.zeros((3, 2)), ready, 8)
    assert found[:, 0] == pytest.approx(1.0)
    assert np.isnan(found[:2, 1]).all()
