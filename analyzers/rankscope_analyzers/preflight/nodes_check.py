"""Check of a fixed number of nodes for torchrun: with other pods, a job hangs or falls apart."""

from __future__ import annotations

import re
from functools import partial

from rankscope_analyzers.preflight.environment import Unreadable, environment
from rankscope_analyzers.preflight.job import Job, NotApplicableError, Role, UndecidedError
from rankscope_analyzers.preflight.outcome import Outcome, failed, outcome_of, passed, warned, worst
from rankscope_analyzers.preflight.values import count, mapping

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|\((\w+)\)|(\w+))")


def fixed_nodes(job: Job) -> Outcome:
    """Return whether each part that gives torchrun a number of nodes gives that of the pods."""
    given = [(role, _nodes(job, role)) for role in job.ranks]
    stating = [role for role, found in given if found]
    if not stating:
        for role in job.ranks:
            role.complete()
        raise NotApplicableError("the job is not elastic")
    return worst(
        (role.name, outcome_of(partial(_fits, job, role, stating, *found)))
        for role, found in given
        if found
    )


def _nodes(job: Job, role: Role) -> tuple[str, set[str]] | None:
    """Return the option, or variable, with the numbers of nodes that a part gives to torchrun."""
    if "--standalone" in role.command:
        return "--standalone", {"1"}
    found = set()
    for word, after in role.words():
        name, equals, value = word.partition("=")
        if name == "--nnodes":
            found.add((value if equals else after).strip("'\";"))
    if found:
        return "--nnodes", found
    variable = environment(job, role).values.get("PET_NNODES")
    if isinstance(variable, Unreadable):
        return "PET_NNODES", {"$PET_NNODES"}
    return ("PET_NNODES", {variable}) if variable else None


def _fits(job: Job, role: Role, stating: list[Role], name: str, values: set[str]) -> Outcome:
    nodes = _number(job, role, name, values)
    if any(one.replicas is None for one in stating):
        raise UndecidedError("the manifest does not say how many pods there are")
    pods = sum(one.replicas or 0 for one in stating)
    if job.kind == "LeaderWorkerSet":  # each group is a job of its own
        pods = count(mapping(job.body, "spec", "leaderWorkerTemplate").get("size")) or 1
    shown = name if name == "--standalone" else f"{name} is {nodes}"
    seen = f"{shown}, with {pods} pod{'s' * (pods != 1)}"
    if nodes in {pods, job.pods}:
        return passed(seen)
    if len(stating) < len(job.ranks):
        raise UndecidedError(f"{seen}, and what other pods are started with is not read")
    if nodes > pods and role.is_pod:
        raise UndecidedError(f"{seen}, and others may not be among those that are read")
    result = "they never start" if nodes > pods else "they do not train together"
    expected, remedy = f"{pods} nodes, as there are pods", f"set --nnodes to {pods}"
    if job.kind == "PyTorchJob" and name == "PET_NNODES" and not role.is_pod:
        return warned(f"{seen}: training-operator before 1.7 keeps it", expected, "remove it")
    return failed(f"{seen}: {result}", expected, remedy)


def _number(job: Job, role: Role, name: str, values: set[str]) -> int:
    """Return the number of nodes, also that of a variable whose value is known.

    Raises:
        UndecidedError: it is not known, or there are several.
    """
    (value, *others) = sorted(values)
    variable = _VARIABLE.fullmatch(value)
    if variable and not others:
        called = variable[variable.lastindex or 0]
        value = _of_operator(job, role, called) or environment(job, role).get(called) or value
    nodes = count(value)
    if nodes is None or others:
        raise UndecidedError(f"{name} is {' or '.join(sorted(values))}")
    return nodes


def _of_operator(job: Job, role: Role, name: str) -> str | None:
    """Return a variable that the training operator sets in pods that do not exist yet.

    With a Master, WORLD_SIZE is the number of pods, since 1.7 times `nprocPerNode` if that is a
    number (training-operator, pkg/controller.v1/pytorch/envvar.go). It wins over the template's.
    """
    specs = mapping(job.body, "spec", "pytorchReplicaSpecs")
    if name != "WORLD_SIZE" or job.kind != "PyTorchJob" or role.is_pod or "Master" not in specs:
        return None
    if any(one.replicas is None for one in job.ranks):
        return None
    return str(job.pods * (count(mapping(job.body, "spec").get("nprocPerNode")) or 1))
