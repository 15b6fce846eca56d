"""How a synchronous step spends its time: tensor lock-step, 1F1B pipeline, gradient exchange.

All arrays have the shape (S, P, D, T): executed step, pipeline stage, replica, tensor rank; groups
have (S, P, T). Times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FORWARD_SHARE = 1 / 3
"""Backward needs twice the multiplications of forward."""

LEAD = 0.04
"""Fraction of a slow hop's excess by which the other members leave the collective earlier."""


@dataclass(frozen=True, slots=True)
class Demands:
    """What every rank would need if it never had to wait.

    Args:
        kernel: time of the rank's own kernels.
        data: time blocked on input.
        stall: time that the host delays the rank.
        transfer: (S, P, T) time of the gradient exchange of each group.
        excess: (S, P, T) part of `transfer` that a slow hop causes.
        hop_end: true for ranks at an end of the slow hop.
        write: time of writing a checkpoint at the end of the step.
        after: (S,) optimizer and evaluation.
        jitter: seconds by which a rank leaves its collective early.
    """

    kernel: Floats
    data: Floats
    stall: Floats
    transfer: Floats
    excess: Floats
    hop_end: npt.NDArray[np.bool_]
    write: Floats
    after: Floats
    jitter: Floats


@dataclass(frozen=True, slots=True)
class Times:
    """What is recorded, and the true end (S,) of every step relative to the first start."""

    start: Floats
    step: Floats
    data: Floats
    compute: Floats
    sync: Floats
    end: Floats


def run(needs: Demands, microbatches: int, timing: str) -> Times:
    """Simulate the steps; checkpoint writers that finish late start the next step late.

    Args:
        needs: what the ranks would need without waiting.
        microbatches: micro-batches in a step.
        timing: "kernel" or "wall" as in the trace contract, or "blocked": as the probe times a job
            on gloo, where every blocked call is sync and a host's stall is compute.
    """
    late = np.zeros_like(needs.write)
    late[1:] = needs.write[:-1] - needs.write[:-1].min(axis=(1, 2, 3), keepdims=True)
    arrival = late + needs.data
    own = needs.kernel + needs.stall
    ready = gradients_ready(arrival.max(axis=3), own.max(axis=3), microbatches)[..., None]
    group_end = (ready.max(axis=2) + needs.transfer)[:, :, None, :]
    lead = LEAD * needs.excess[:, :, None, :] * ~needs.hop_end
    leave = np.maximum(group_end - lead - needs.jitter, ready)
    barrier = group_end.max(axis=(1, 2, 3))
    common = (barrier + needs.after)[:, None, None, None]
    step = common + needs.write - late
    waited_from = ready + 0 * arrival if timing == "wall" else arrival + own
    compute = {"wall": ready - arrival, "blocked": own, "kernel": needs.kernel}[timing]
    whole = (common + needs.write.min(axis=(1, 2, 3), keepdims=True))[:, 0, 0, 0]
    begin = np.concatenate([[0.0], np.cumsum(whole)[:-1]])[:, None, None, None]
    last = begin + late + step
    return Times(
        begin + late, step, needs.data, compute, leave - waited_from, last.max(axis=(1, 2, 3))
    )


def gradients_ready(arrival: Floats, busy: Floats, microbatches: int) -> Floats:
    """Return (S, P, D) when each stage's gradients are complete under 1F1B.

    Args:
        arrival: (S, P, D) when the stage's input arrives.
        busy: (S, P, D) compute of the stage over all micro-batches.
        microbatches: micro-batches in a step.
    """
    stages = busy.shape[1]
    each = busy / microbatches
    forward = each * FORWARD_SHARE
    backward = each - forward
    start = arrival.copy()
    for stage in range(1, stages):
        start[:, stage] = np.maximum(start[:, stage], start[:, stage - 1] + forward[:, stage - 1])
    before = np.cumsum(backward, axis=1) - backward
    following = each.sum(axis=1, keepdims=True) - np.cumsum(each, axis=1)
    ahead = (stages - 1 - np.arange(stages))[None, :, None]
    fill = np.maximum(0.0, following - ahead * forward)
    end = (start + fill + busy + before).max(axis=1, keepdims=True)
    return np.asarray(end - before)
