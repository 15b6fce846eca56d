"""Checks of a job against the cluster's rankscope.yaml: its fabric, and the projects of jobs."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.preflight.attachment_checks import Range, addresses, ranges_by_network
from rankscope_analyzers.preflight.job import Job, NotApplicableError, Role, UndecidedError
from rankscope_analyzers.preflight.outcome import Outcome, failed, of_ranks, passed, warned
from rankscope_analyzers.preflight.values import text


def _configured(job: Job) -> Configuration:
    known = job.settings.configuration
    if known is None:
        raise NotApplicableError("no rankscope.yaml was given (--config)")
    return known


def fabric_addresses(job: Job) -> Outcome:
    """Check that a network of each pod is one of the cluster's fabric, by its addresses."""
    fabric = [ipaddress.ip_network(one) for one in _configured(job).fabric]
    if not fabric:
        raise NotApplicableError("rankscope.yaml has no fabric ranges")
    parts = _given(job)
    if not parts:
        raise UndecidedError("no network or pod shows its addresses")
    inside: list[str] = []
    for part, given in parts.items():
        found = [shown for shown, range_ in given if _is_part(range_, fabric)]
        if not found:
            who = f"{part} has only " if len(parts) > 1 else ""
            return failed(
                who + ", ".join(dict.fromkeys(shown for shown, _ in given)),
                f"a network with addresses in {', '.join(map(str, fabric))}",
                "attach a network of the fabric, or correct fabric.ranges of rankscope.yaml",
            )
        inside += found
    return passed(", ".join(dict.fromkeys(inside)))


def _given(job: Job) -> Mapping[str, Sequence[tuple[str, Range]]]:
    """Return addresses in words and as ranges: by pod, else those that the job's networks assign.

    Raises:
        UndecidedError: a definition is unknown, or an annotation cannot be read.
    """
    by_pod = {role.name: list(addresses(role)) for role in job.ranks}
    found = {
        pod: [(f"{name}: {address}", _network(address)) for name, address in several]
        for pod, several in by_pod.items()
        if several
    }
    if found:
        return found
    assigned = [
        (f"{name}: {one}", one)
        for name, (_, ranges) in ranges_by_network(job).items()
        for one in ranges
    ]
    return {job.name: assigned} if assigned else {}


def _network(address: str) -> Range:
    try:
        return ipaddress.ip_network(address)
    except ValueError:
        raise UndecidedError(f"a pod has {address!r}, which is not an address") from None


def _is_part(range_: Range, fabric: Sequence[Range]) -> bool:
    """Return True if all addresses of a range belong to the fabric."""
    first, last = range_.network_address, range_.broadcast_address
    return any(first in one and last in one for one in fabric)


def _project(job: Job, role: Role) -> Outcome:
    """Check that tickets and costs of the job are assigned to its project."""
    known = _configured(job)
    labels = known.labels["project"]
    named = [text(role.labels.get(label)) for label in labels]
    project = known.project_of(f"{job.namespace}/", next(filter(None, named), ""))
    if project:
        return passed(f"project {project}")
    role.complete()
    return warned(
        f"pods have no label {' or '.join(labels)}, and namespace {job.namespace} has no project",
        "a project that the job's cost and tickets go to",
        f"add the label {labels[0]}, or the namespace to projects of rankscope.yaml",
    )


job_project = of_ranks(_project)
