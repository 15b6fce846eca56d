"""Windows of steps as conclusions about stragglers look at them, exact to the last digit.

A suite of simulated jobs shows whether faults are found; here a rank is late by just so much.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.view import (
    PARTS,
    WINDOW_STEPS,
    Baseline,
    Spikes,
    View,
)

STEP = 1.0
COMPUTE = 0.6
EXCHANGE = 0.1


def shape(replicas=8, pipeline=1, tensor=1, *, per_node=4, wall=False, microbatches=4) -> Shape:
    """Return ranks in their usual order: tensor, then data, then pipeline; nodes filled up."""
    world = pipeline * replicas * tensor
    nodes = np.arange(world).reshape(pipeline, replicas, tensor) // per_node
    return Shape(pipeline, replicas, tensor, microbatches, wall, nodes)


def ranks(changed, usual=0.0, world=8):
    """Return (1, world, 1): what some ranks have, and all others."""
    values = np.full(world, float(usual))
    for rank, value in changed.items():
        values[rank] = value
    return values[None, :, None]


def in_steps(values, chosen, steps=WINDOW_STEPS, usual=0.0):
    """Return (steps, 1, world, 1): these values in some steps, counted from the newest, 1."""
    every = np.full((steps, *np.shape(values)), float(usual))
    for step in chosen:
        every[-step] = values
    return every


def swinging(values, by, steps=WINDOW_STEPS):
    """Return (steps, ...) values that are off by as much in every step, up and down in turns."""
    signs = np.where(np.arange(steps) % 2, 1.0, -1.0)
    return values + by * signs.reshape(-1, *[1] * np.ndim(values))


def view(
    arranged: Shape | None = None, *, steps=WINDOW_STEPS, healthy=True, compute=COMPUTE,
    data=0.0, cpu_wait=None, exchange=EXCHANGE, residual=0.0, waits=None, samples=None, **changes,
) -> View:  # fmt: skip
    """Return a window in which nothing is wrong but what is given.

    Args:
        healthy: whether the run has a past to compare with, in which nothing was wrong.
        compute: seconds, of any shape that fits (steps, P, D, T).
        data: seconds beyond the usual input time, likewise.
        cpu_wait: seconds, likewise.
        exchange: seconds of each group's exchange, of any shape that fits (steps, P, T).
        residual: seconds of rest before a barrier, as for compute.
        waits: seconds in collectives; by default what is left of the slowest rank's time.
        samples: counts, as for compute.
    """
    arranged = arranged or shape()
    wide = (steps, *arranged.sizes)

    def filled(values):
        return np.array(np.broadcast_to(np.asarray(values, float), wide))

    busy, late = filled(compute), filled(data)
    groups = np.array(np.broadcast_to(exchange, (steps, arranged.pipeline, arranged.tensor)), float)
    stage = np.median(busy, axis=(2, 3))
    by_replica = busy.mean(axis=(1, 3))
    lead = (busy + late).max(axis=(1, 2, 3), keepdims=True) - busy - late
    made = View(
        shape=arranged,
        baseline=past(arranged) if healthy else None,
        spikes=Spikes(np.zeros(steps), np.zeros(arranged.node_count, int), np.full(steps, -1.0)),
        step_seconds=STEP,
        duration=np.full(steps, STEP),
        relative=busy / stage[:, :, None, None],
        replica=by_replica / np.median(by_replica, axis=1)[:, None],
        replica_long=by_replica / np.median(by_replica, axis=1)[:, None],
        stage=stage,
        data=late,
        data_long=late,
        data_median=np.zeros(steps),
        transfer=groups,
        transfer_long=groups,
        residual=filled(residual),
        residual_long=filled(residual),
        compute=busy,
        input=late,
        sync=filled(lead if waits is None else waits),
        cpu_wait=None if cpu_wait is None else filled(cpu_wait),
        work=None if samples is None else filled(samples),
        exit_lateness=None,
        exit_lateness_long=None,
        means=False,
        known=frozenset(PARTS),
    )
    return replace(made, **changes)


def past(arranged: Shape, **changes) -> Baseline:
    """Return the healthy beginning of a run."""
    stages, groups = arranged.pipeline, (arranged.pipeline, arranged.tensor)
    made = Baseline(
        relative=np.ones(arranged.sizes),
        replica=np.ones(arranged.replicas),
        replica_spread=0.0,
        stage=np.full(stages, COMPUTE),
        stage_noise=0.0,
        transfer=np.full(groups, EXCHANGE),
        transfer_noise=np.zeros(groups),
        data=0.0,
        duration=STEP,
    )
    return replace(made, **changes)
