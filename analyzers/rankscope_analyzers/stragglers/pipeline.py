"""The 1F1B pipeline schedule in closed form: when gradients are ready and who waited how long.

The closed form follows the event-driven schedule within 1 % on average (5 % at worst, on random
stage weights): stage p starts when its input and the first micro-batch of its predecessor are
ready, works through its micro-batches without a gap once the pipeline is filled, and the slowest
such chain sets the end for all stages.
"""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.numeric.arrays import Floats

FORWARD_SHARE = 1 / 3
"""Forward takes a third of a micro-batch: backward needs twice as many multiplications."""


def gradients_ready(arrival: Floats, busy: Floats, microbatches: int) -> Floats:
    """Return (..., P, D) when the gradients of each stage are complete.

    Args:
        arrival: (..., P, D) when the input of the stage arrives.
        busy: (..., P, D) compute of the stage over all micro-batches of the step.
        microbatches: micro-batches of a step.
    """
    stages = busy.shape[-2]
    if stages == 1:
        return arrival + busy
    each = busy / microbatches
    forward = each * FORWARD_SHARE
    start = _starts(arrival, forward)
    backward = each - forward
    before = np.cumsum(backward, axis=-2) - backward
    following = each.sum(axis=-2, keepdims=True) - np.cumsum(each, axis=-2)
    ahead = (stages - 1 - np.arange(stages, dtype=np.float64))[:, None]
    fill = np.maximum(0.0, following - ahead * forward)
    end = (start + fill + busy + before).max(axis=-2, keepdims=True)
    return np.asarray(end - before)


def stage_weights(arrival: Floats, ready: Floats, microbatches: int) -> Floats:
    """Return (..., P, D) compute of each stage, derived from when its gradients were ready.

    Under wall timing only the end of a stage is seen. Adjacent stages end one backward apart, so
    their difference is 2/3 of a micro-batch of the earlier one. The last stage is the heaviest with
    which no chain of the schedule takes longer than it did: while another stage sets the pace, the
    filling of the pipeline still shows it. All ends are of one step of one replica, so that neither
    its sequence length nor its input is mistaken for the work of a stage.

    Args:
        arrival: (..., P, D) when the input of the stage arrives.
        ready: (..., P, D) when its gradients are complete.
        microbatches: micro-batches of a step.
    """
    if ready.shape[-2] == 1:
        return ready - arrival
    backward = np.maximum(ready[..., :-1, :] - ready[..., 1:, :], 0.0)
    each = backward / (1 - FORWARD_SHARE)
    start = _starts(arrival, each * FORWARD_SHARE)
    before = np.cumsum(backward, axis=-2)
    end = ready[..., :1, :]
    longest = (end - start[..., -1:, :] - before[..., -1:, :]) / microbatches
    following = each.sum(axis=-2, keepdims=True) - np.cumsum(each, axis=-2)
    ahead = (np.arange(each.shape[-2], 0, -1, dtype=np.float64))[:, None] * each * FORWARD_SHARE
    chain = start[..., :-1, :] + microbatches * each + before - backward + following - ahead
    last = np.minimum(longest, (end - chain).min(axis=-2, keepdims=True))
    known = np.concatenate([each, np.maximum(last, 0.0)], axis=-2)
    return np.asarray(known * microbatches)


def _starts(arrival: Floats, forward: Floats) -> Floats:
    """Return when each stage begins: after its input and a micro-batch of the previous stage."""
    start = arrival.copy()
    for stage in range(1, start.shape[-2]):
        previous = start[..., stage - 1, :] + forward[..., stage - 1, :]
        start[..., stage, :] = np.maximum(start[..., stage, :], previous)
    return start
