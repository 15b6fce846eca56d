"""Whether the fabric can carry what a step of the target time exchanges.

What leaves each node in a step, by how the model is laid out over N nodes (an all-reduce is a
reduce-scatter and an all-gather, Rabenseifner 2004; fully sharded training gathers parameters twice
and reduces gradients once):

    all-reduce      2 (N-1)/N x bytes of all gradients
    fully sharded   3 (N-1)/N x bytes of all parameters

Other layouts exchange what their model's shape says, which cannot be derived from its size.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_analyzers.preflight.job import Job, NotApplicableError, UndecidedError
from rankscope_analyzers.preflight.outcome import Outcome, failed, passed, warned
from rankscope_analyzers.preflight.step_target import (
    ANNOTATIONS,
    DEFAULTS,
    Target,
    TargetError,
    filled,
    of_annotations,
)
from rankscope_analyzers.preflight.values import mapping, text

EXCHANGES: Mapping[str, float] = {"all-reduce": 2.0, "sharded": 3.0}
"""How often (N-1)/N of the model leaves each node in a step."""

LAYOUTS = (*EXCHANGES, "other")
"""What a job may be said to exchange; of `other` it is not known how much."""


def target_of(job: Job, given: Target) -> Target:
    """Return a job's target: from options, else from annotations of the job or of its pods.

    Raises:
        UndecidedError: an annotation cannot be read.
    """
    try:
        own = of_annotations(mapping(job.body, "metadata", "annotations"))
        of_pods = [of_annotations(role.annotations) for role in job.ranks[:1]]
    except TargetError as error:
        raise UndecidedError(f"an annotation {ANNOTATIONS}* cannot be read: {error}") from None
    return filled(given, own, *of_pods, DEFAULTS)


def leaving_bytes(layout: str, nodes: int, model_bytes: float) -> float:
    """Return how many bytes leave each node in a step.

    Args:
        layout: of EXCHANGES.
        nodes: number of nodes that the model is spread over.
        model_bytes: of all gradients or parameters.
    """
    return EXCHANGES[layout] * (nodes - 1) / nodes * model_bytes


def fabric_budget(job: Job) -> Outcome:
    """Check that the fabric carries what a step exchanges within the target step time."""
    target = target_of(job, job.settings.target)
    if target.parameters is None or target.step_seconds is None:
        raise NotApplicableError("model size and target step time are not given")
    job.need_several()
    if target.layout not in EXCHANGES:
        why = f"what layout {target.layout!r} exchanges" if target.layout else "the model's layout"
        raise UndecidedError(f"{why} is not known; of {' and '.join(EXCHANGES)} it is")
    if target.node_gbits is None:
        raise UndecidedError(
            "the rate of a node's rails is unknown: give --node-gbits or --cluster"
        )
    return _judged(job, target, target.parameters, target.step_seconds)


def _nodes(job: Job) -> int:
    """Return the number of nodes that the model is spread over: one per pod if unassigned.

    Raises:
        UndecidedError: the manifest does not specify the number of pods.
    """
    known = {text(role.spec.get("nodeName")) for role in job.ranks}
    if "" not in known:
        return len(known)
    if any(role.replicas is None for role in job.ranks):
        raise UndecidedError("the manifest does not say how many pods there are")
    return job.pods


def _judged(job: Job, target: Target, parameters: float, step_seconds: float) -> Outcome:
    overlap, gbits = target.overlap or 0.0, target.node_gbits or 0.0
    model = parameters * (target.parameter_bytes or 0.0)
    nodes = _nodes(job)
    if nodes < 2:
        raise NotApplicableError("all pods are on one node")
    leaving = leaving_bytes(str(target.layout), nodes, model)
    seconds = leaving * 8 / (gbits * 1e9)
    seen = (
        f"{target.layout} over {nodes} nodes: {leaving / 1e9:.3g} GB leave each in a step,"
        f" {seconds:.3g} s at {gbits:g} Gbit/s, of {step_seconds:g} s"
    )
    assumed = f"{overlap:.0%} of the step can hide communication"
    if seconds <= overlap * step_seconds:
        return passed(f"{seen}, if {assumed}")
    faster = "more rails, fewer bytes on the wire, steps accumulated, or a longer step"
    if seconds <= step_seconds:
        return warned(f"{seen}, if {assumed}", f"{overlap * step_seconds:.3g} s at most", faster)
    return failed(f"{seen}, even if all of it were hidden", f"{step_seconds:g} s at most", faster)
