"""Checks of a job against the cluster's rankscope.yaml: its fabric, and the projects of jobs."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

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
    """Check that a network of the job is one of the cluster's fabric, by its addresses."""
    fabric = [ipaddress.ip_network(one) for one in _configured(job).fabric]
    if not fabric:
        raise NotApplicableError("rankscope.yaml has no fabric ranges")
    seen = list(dict.fromkeys(_given(job)))
    if not seen:
        raise UndecidedError("no network or pod shows its addresses")
    inside = [shown for shown, range_ in seen if _is_part(range_, fabric)]
    if inside:
        return passed(", ".join(inside))
    return failed(
        ", ".join(shown for shown, _ in seen),
        f"a network with addresses in {', '.join(map(str, fabric))}",
        "attach a network of the fabric, or correct fabric.ranges of rankscope.yaml",
    )


def _given(job: Job) -> Iterator[tuple[str, Range]]:
    """Yield addresses in words and as ranges: of the pods, else those that networks assign.

    Raises:
        UndecidedError: a definition is unknown, or an annotation cannot be read.
    """
    found = [one for role in job.ranks for one in addresses(role)]
    yield from ((f"{name}: {address}", _network(address)) for name, address in found)
    if not found:
        for name, (_, ranges) in ranges_by_network(job).items():
            yield from ((f"{name}: {one}", one) for one in ranges)


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
