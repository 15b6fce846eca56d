"""What quotas allow and what is used of them: ResourceQuota, and Kueue's ClusterQueue.

Source: k8s.io/api/core/v1 ResourceQuotaStatus, kueue apis/kueue/v1beta1/clusterqueue_types.go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from rankscope_agent.contract import job_names
from rankscope_analyzers.workloads.fields import Fields, objects, text, within
from rankscope_analyzers.workloads.quantities import quantity

MOST_RESOURCES = 8
"""Resources of one quota that are kept, those of GPUs first."""

GPUS = ("nvidia.com/", "amd.com/gpu", "gpu.")
_PODS = frozenset(("pods", "count/pods", "cpu", "memory", "ephemeral-storage"))
_PREFIXES = ("requests.", "limits.")


@dataclass(frozen=True, slots=True)
class Use:
    """How much of one resource is used, and the limit."""

    used: float
    limit: float

    @property
    def full(self) -> bool:
        """Return True if nothing is left."""
        return self.used >= self.limit


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota at one moment.

    Args:
        kind: of the object.
        namespace: that it limits, empty for a ClusterQueue, which many may use.
        name: of the object.
        uses: by resource; bytes, cores, devices or objects.
    """

    kind: str
    namespace: str
    name: str
    uses: Mapping[str, Use]

    @property
    def full_of(self) -> tuple[str, ...]:
        """Return the resources of pods of which nothing is left."""
        return tuple(name for name, use in self.uses.items() if use.full and _of_pods(name))


def resource_quota(found: Fields) -> tuple[str, Quota] | None:
    """Return uid and value of a ResourceQuota, None if it cannot be identified."""
    status = within(found, "status")
    hard, used = within(status, "hard"), within(status, "used")
    uses = {
        name: Use(quantity(used.get(name)) or 0.0, limit)
        for name, limit in ((name, quantity(hard[name])) for name in hard)
        if limit is not None
    }
    return _named(found, "ResourceQuota", text(within(found, "metadata"), "namespace"), uses)


def cluster_queue(found: Fields) -> tuple[str, Quota] | None:
    """Return uid and value of a ClusterQueue: sums over its flavors, including what is borrowed."""
    limits = _sums(
        (one, "nominalQuota")
        for group in objects(within(found, "spec"), "resourceGroups")
        for flavor in objects(group, "flavors")
        for one in objects(flavor, "resources")
    )
    used = _sums(
        (one, "total")
        for flavor in objects(within(found, "status"), "flavorsUsage")
        for one in objects(flavor, "resources")
    )
    uses = {name: Use(used.get(name, 0.0), limit) for name, limit in limits.items()}
    return _named(found, "ClusterQueue", "", uses)


QUOTAS: tuple[tuple[str, str, tuple[str, ...], Callable[[Fields], tuple[str, Quota] | None]], ...]
QUOTAS = (
    ("resourcequotas", "", ("v1",), resource_quota),
    ("clusterqueues", "kueue.x-k8s.io", ("v1beta2", "v1beta1"), cluster_queue),
)
"""Plural, group and versions of each kind, and its reader."""


def _of_pods(resource: str) -> bool:
    return resource in _PODS or resource.startswith(_PREFIXES)


def _sums(found: Iterable[tuple[Fields, str]]) -> Mapping[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for one, key in found:
        value = quantity(one.get(key))
        if value is not None:
            sums[text(one, "name")] += value
    return sums


def _named(
    found: Fields, kind: str, namespace: str, uses: Mapping[str, Use]
) -> tuple[str, Quota] | None:
    metadata = within(found, "metadata")
    name, uid = text(metadata, "name"), text(metadata, "uid")
    if not (uid and job_names.is_name(name) and (not namespace or job_names.is_name(namespace))):
        return None
    first = islice(sorted(uses, key=_order), MOST_RESOURCES)
    return uid, Quota(kind, namespace, name, {one: uses[one] for one in first})


def _order(resource: str) -> tuple[bool, str]:
    """Sort key of resources: those of GPUs first."""
    bare = resource
    for prefix in _PREFIXES:
        bare = bare.removeprefix(prefix)
    return not bare.startswith(GPUS), resource
