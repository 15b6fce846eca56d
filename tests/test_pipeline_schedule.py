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


@pytest.mark.parametrize(
    "weights", [(1.0, 1.0, 1.0, 1.0), (1.0, 1.4, 1.0, 1.0), (1.0, 1.0, 1.0, 1.4)]
)
def test_stage_weights_come_back_from_when_stages_end(weights):
    busy = np.array(weights)[:, None]
    ready = gradients_ready(np.zeros_like(busy), busy, 8)[:, 0]
    assert stage_weights(ready, 8)[:3] == pytest.approx(weights[:3], abs=0.01)
    if weights[3] > 1.0:
        assert stage_weights(ready, 8)[3] == pytest.approx(weights[3], abs=0.01)
