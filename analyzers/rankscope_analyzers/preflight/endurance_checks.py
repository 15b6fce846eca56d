"""Checks of what a job survives: restarts, elastic bounds, and the time that it gets to end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rankscope_analyzers.preflight.job import Job, NotApplicableError, Role, UndecidedError
from rankscope_analyzers.preflight.nodes_check import fixed_nodes
from rankscope_analyzers.preflight.outcome import Outcome, failed, of_ranks, passed, warned
from rankscope_analyzers.preflight.values import Object, mapping, mappings, number, text

ENOUGH = 2
"""Restarts: one for the fault that is sure to come, one for the next before anybody reacts."""

LIMITS: Mapping[str, tuple[tuple[str, ...], int | None]] = {
    "PyTorchJob": (("spec", "runPolicy", "backoffLimit"), None),
    "MPIJob": (("spec", "runPolicy", "backoffLimit"), None),
    "JobSet": (("spec", "failurePolicy", "maxRestarts"), 0),
    "Job": (("spec", "backoffLimit"), 6),
    "Volcano Job": (("spec", "maxRetry"), 3),
    "RayJob": (("spec", "backoffLimit"), 0),
}
"""The field with each kind's number of restarts, and its default; None is no limit."""

LAUNCHER_RETRIES = 6
"""Default of the batch Job in which mpi-operator (MPIJob v2beta1) runs the launcher."""

NEVER = "Never"
POLICIES: Mapping[str, tuple[str, str, frozenset[str]]] = {
    "PyTorchJob": ("pytorchReplicaSpecs", "OnFailure", frozenset({"master", "worker"})),
    "MPIJob": ("mpiReplicaSpecs", NEVER, frozenset({"launcher"})),
}
"""Where training-operator has the restart policy of parts, its default, and the parts whose end
is the job's (pkg/apis/kubeflow.org/v1, pytorch_types.go and mpi_types.go)."""

_NNODES = re.compile(r"(\d{1,9})(?::(\d{1,9}))?")


def restart_budget(job: Job) -> Outcome:
    """Check that a job survives a fault or two."""
    if job.kind == "TrainJob":
        raise UndecidedError("restarts of a TrainJob are set by its runtime")
    if job.missing:
        raise UndecidedError(job.missing)
    if job.kind not in LIMITS:
        raise NotApplicableError(f"{job.kind} has no limit on restarts")
    path, default = LIMITS[job.kind]
    default = LAUNCHER_RETRIES if _by_mpi_operator(job) else default
    given = mapping(job.body, *path[:-1]).get(path[-1])
    limit = default if given is None else number(given)
    name = ".".join(path)
    expected, remedy = f"{ENOUGH} restarts at least", f"set {name} to {ENOUGH} or more"
    if given is not None and limit is None:
        raise UndecidedError(f"{name} is not a number")
    elastic = number(mapping(job.body, "spec", "elasticPolicy").get("maxRestarts"))
    final = next(_never_restarted(job), "")
    if elastic is not None and (given is None or final):
        name, limit = "spec.elasticPolicy.maxRestarts", elastic
    if final and elastic is None:
        return failed(f"{final}: no restarts", expected, "set restartPolicy: OnFailure")
    if limit is None:
        return warned(f"{name} is not set: unlimited restarts", expected, remedy)
    seen = f"{name}: {limit}" + (" by default" if given is None and elastic is None else "")
    used = _used(job)
    left = limit - used
    if used:
        seen += f", of which {used} {'is' if used == 1 else 'are'} used"
        remedy += "; first find out what ended the job"
    if left >= ENOUGH:
        return passed(seen)
    return (warned if left > 0 else failed)(seen, expected, remedy)


def _by_mpi_operator(job: Job) -> bool:
    return job.kind == "MPIJob" and text(job.body.get("apiVersion")).startswith("kubeflow.org/v2")


def _never_restarted(job: Job) -> Iterator[str]:
    """Yield the parts that training-operator does not start again, with what says so."""
    if job.kind not in POLICIES or not job.body or _by_mpi_operator(job):
        return
    key, default, parts = POLICIES[job.kind]
    for name, part in mapping(job.body, "spec", key).items():
        given = text(mapping(part).get("restartPolicy"))
        if str(name).lower() in parts and (given or default) == NEVER:
            yield f"{name}.restartPolicy: {NEVER}" + ("" if given else " by default")


STARTED_AGAIN: Mapping[str, tuple[str, ...]] = {
    "JobSet": ("restartsCountTowardsMax", "restarts"),
    "Job": ("failed",),
    "Volcano Job": ("retryCount",),
    "RayJob": ("failed",),
}
"""The field in each kind's status that counts towards its limit, the exact field first."""


def _used(job: Job) -> int:
    """Return how many of its restarts a job has used up."""
    status = mapping(job.body, "status")
    for key in STARTED_AGAIN.get(job.kind, ()):
        count = number(status.get(key))
        if count is not None:
            return count
    # Kubeflow counts the restarts of containers, which the kubelet starts again in their pods.
    return sum(_restarts(role) for role in job.roles) if "runPolicy" in _spec(job) else 0


def _spec(job: Job) -> Object:
    return mapping(job.body, "spec")


def _restarts(role: Role) -> int:
    containers = mappings(role.status.get("containerStatuses"))
    return sum(number(one.get("restartCount")) or 0 for one in containers)


def elastic_bounds(job: Job) -> Outcome:
    """Check that an elastic job's bounds, or a fixed number of nodes, hold its pods."""
    bounds = _policy_bounds(job) or _launcher_bounds(job)
    if not bounds:
        return fixed_nodes(job)
    name, least, most = bounds
    seen = f"{name} from {least} to {most}, with {job.pods} pods"
    expected = "a minimum below the maximum, and the pods between them"
    if least < 1 or least > most:
        return failed(seen, expected, "correct the bounds")
    if any(role.replicas is None for role in job.ranks):
        raise UndecidedError("the manifest does not say how many pods there are")
    if job.pods < least:
        return failed(f"{seen}: it never starts", expected, "lower the minimum or add pods")
    if job.pods > most:
        return failed(f"{seen}: some never join", expected, "raise the maximum or remove pods")
    if least == most:
        return warned(f"{seen}: it waits for every pod", expected, "lower the minimum")
    return passed(seen)


def _policy_bounds(job: Job) -> tuple[str, int, int] | None:
    policy = mapping(job.body, "spec", "elasticPolicy")
    least, most = number(policy.get("minReplicas")), number(policy.get("maxReplicas"))
    if not policy or (least is None and most is None):
        return None
    return "elasticPolicy", least or 1, most if most is not None else job.pods


def _launcher_bounds(job: Job) -> tuple[str, int, int] | None:
    for role in job.ranks:
        for word, after in role.words():
            name, equals, value = word.partition("=")
            match = _NNODES.fullmatch(value if equals else after)
            if name in {"--nnodes", "--nnodes-range"} and match and match[2]:
                return "--nnodes", int(match[1]), int(match[2])
    return None


DEFAULT_GRACE = 30  # default of a pod, in seconds


def _termination_grace(job: Job, role: Role) -> Outcome:
    measured = job.settings.checkpoint_seconds
    if measured is None:
        raise NotApplicableError("the duration of a checkpoint is not given: --checkpoint-seconds")
    given = role.spec.get("terminationGracePeriodSeconds")
    if given is None:
        role.complete()
    grace = DEFAULT_GRACE if given is None else number(given)
    if grace is None:
        raise UndecidedError("terminationGracePeriodSeconds is not a number")
    needed = round(measured * 1.5)
    seen = f"terminationGracePeriodSeconds: {grace}, and a checkpoint takes {measured:g} s"
    expected = f"{needed} s or more, half as long again as a checkpoint"
    if grace < measured:
        return failed(f"{seen}: it is cut off", expected, f"set it to {needed}")
    return passed(seen) if grace >= needed else warned(seen, expected, f"set it to {needed}")


termination_grace = of_ranks(_termination_grace)
