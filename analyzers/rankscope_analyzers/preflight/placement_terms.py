"""Placement constraints of a job's pods: affinity, selectors, annotations of Kueue and JobSet."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_analyzers.preflight.job import Role
from rankscope_analyzers.preflight.values import Object, mapping, mappings, text

ZONE_KEYS = frozenset({"topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"})
RACK_PREFIXES = (
    "cloud.google.com/gce-topology-",
    "cloud.google.com/gke-placement-group",
    "topology.gke.io/",
    "network.topology.nvidia.com/",
    "topology.k8s.aws/",
    "oci.oraclecloud.com/rdma.",
    "nvidia.com/gpu.clique",
)
"""Labels of nodes for a block, rack or leaf switch."""

_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_REQUIRED = (
    "kueue.x-k8s.io/podset-required-topology",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
)
_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"


def is_zone(key: str) -> bool:
    """Return True for the label of a zone."""
    return key in ZONE_KEYS


def is_rack(key: str) -> bool:
    """Return True for the label of a block, rack or leaf switch."""
    return key.startswith(RACK_PREFIXES) or key.rpartition("/")[2] in {"rack", "block", "leaf"}


def exclusive(role: Role) -> str:
    """Return the label of nodes by which each Job of a JobSet has a place of its own, or none."""
    return text(role.annotations.get(_EXCLUSIVE))


def required(role: Role, jobs: int = 1) -> set[str]:
    """Return the labels of nodes in which all pods of a role must agree.

    Args:
        role: whose pods.
        jobs: of a JobSet; with one alone, a place of its own is one that its pods share.
    """
    found = {exclusive(role)} - {""} if jobs == 1 else set()
    found |= {text(role.annotations[name]) for name in _REQUIRED if name in role.annotations}
    found |= set(_pod_terms(role, "podAffinity", required_only=True))
    found |= {str(key) for key in mapping(role.spec, "nodeSelector")}
    node = mapping(
        role.spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = [
        mappings(one.get("matchExpressions")) for one in mappings(node.get("nodeSelectorTerms"))
    ]
    for term in terms if len(terms) == 1 else ():
        found |= {text(one.get("key")) for one in term if _one_value(one)}
    return found


def _one_value(expression: Object) -> bool:
    values = expression.get("values")
    return (
        text(expression.get("operator")) == "In" and isinstance(values, list) and len(values) == 1
    )


def preferred(role: Role) -> set[str]:
    """Return the labels of nodes in which pods of a role agree if possible."""
    found = {text(role.annotations[_PREFERRED])} if _PREFERRED in role.annotations else set()
    return found | set(_pod_terms(role, "podAffinity", required_only=False))


def apart(role: Role) -> set[str]:
    """Return the labels of nodes in which no two pods of a role may agree."""
    return set(_pod_terms(role, "podAntiAffinity", required_only=True))


def _pod_terms(role: Role, kind: str, *, required_only: bool) -> Iterator[str]:
    affinity = mapping(role.spec, "affinity", kind)
    for one in mappings(affinity.get("requiredDuringSchedulingIgnoredDuringExecution")):
        yield text(one.get("topologyKey"))
    if not required_only:
        for one in mappings(affinity.get("preferredDuringSchedulingIgnoredDuringExecution")):
            yield text(mapping(one, "podAffinityTerm").get("topologyKey"))


def spreads(role: Role) -> Iterator[tuple[str, bool]]:
    """Yield the label of each spread constraint, and whether it must hold."""
    for one in mappings(role.spec.get("topologySpreadConstraints")):
        must = text(one.get("whenUnsatisfiable")) != "ScheduleAnyway"
        yield text(one.get("topologyKey")), must


def places(role: Role) -> bool:
    """Return True if something keeps a role's pods near each other."""
    return any(is_zone(key) or is_rack(key) for key in required(role) | preferred(role))
