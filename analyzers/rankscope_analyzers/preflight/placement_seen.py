"""Where existing pods are: the zones and racks of their nodes, by the nodes' labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from rankscope_analyzers.preflight.job import Job, NotApplicableError, Role, UndecidedError
from rankscope_analyzers.preflight.placement_terms import is_rack
from rankscope_analyzers.preflight.values import mapping, text
from rankscope_analyzers.text.name_lists import listed

Places = Mapping[str, Counter[str]]
"""Number of pods by label of nodes and its value."""


def places(job: Job, wanted: Callable[[str], bool]) -> Places | None:
    """Return where a job's pods are, None if only templates, or no nodes, are known.

    Args:
        job: whose pods may exist.
        wanted: selects the labels of nodes that show it.

    Raises:
        UndecidedError: a requested node is unknown, or lacks a label that others have.
        NotApplicableError: no node has such a label.
    """
    placed = [role for role in job.ranks if text(role.spec.get("nodeName"))]
    if not placed:
        return None
    labels = [_labels(job, role) for role in placed]
    if any(one is None for one in labels):
        return None
    found: dict[str, Counter[str]] = {}
    for known in labels:
        for key, value in (known or {}).items():
            if wanted(str(key)):
                found.setdefault(str(key), Counter())[text(value)] += 1
    if not found:
        raise NotApplicableError("no node of the job has a label for it")
    whole = {key: values for key, values in found.items() if values.total() == len(placed)}
    if not whole:
        raise UndecidedError(f"not all nodes of the job have the label {next(iter(found))}")
    return whole


def _labels(job: Job, role: Role) -> Mapping[str, object] | None:
    """Return a node's labels, with those that Kubernetes copies to the pod.

    Raises:
        UndecidedError: the node was requested and is unknown.
    """
    name = text(role.spec.get("nodeName"))
    node = job.cluster.get("Node", "", name)
    if node is None:
        key = ("Node", "", name)
        if key in job.cluster.unread or job.cluster.lacks(*key):
            raise UndecidedError(f"node {name} {job.cluster.unknown(*key)}")
        return None
    return {**role.labels, **mapping(node, "metadata", "labels")}


def is_shared_place(key: str) -> bool:
    """Return True for labels of racks and blocks, without those that name a single host."""
    return is_rack(key) and not key.endswith(("host", "hostname"))


def described(values: Counter[str]) -> str:
    """Describe how many pods are where."""
    return listed([f"{value} ({count})" for value, count in sorted(values.items())])
