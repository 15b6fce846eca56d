"""Checks of where pods run: one zone, few racks, and no eviction in the middle."""

from __future__ import annotations

from collections.abc import Callable

from rankscope_analyzers.preflight.job import Job, NotApplicableError, Role, replicas
from rankscope_analyzers.preflight.kinds import WITHOUT_RANKS
from rankscope_analyzers.preflight.outcome import Outcome, failed, of_ranks, passed, warned
from rankscope_analyzers.preflight.placement_seen import described, is_shared_place, places
from rankscope_analyzers.preflight.placement_terms import (
    apart,
    exclusive,
    is_rack,
    is_zone,
    preferred,
    required,
    spreads,
)
from rankscope_analyzers.preflight.values import mapping, mappings, text
from rankscope_analyzers.text.name_lists import listed

KEPT = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}

_ONE_ZONE = (
    "bind the job to one zone: podAffinity over topology.kubernetes.io/zone, or Kueue's"
    " podset-required-topology"
)
_FEW_RACKS = (
    "use podAffinity over the nodes' rack or block label, or Kueue's podset-preferred-topology"
)


def _zone(job: Job, role: Role) -> Outcome:
    job.need_several()
    jobs = _child_jobs(job)
    if jobs > 1 and is_zone(exclusive(role)):
        seen = f"exclusive-topology keeps {jobs} Jobs apart by {exclusive(role)}"
        return failed(seen, "one zone", f"remove the annotation; {_ONE_ZONE}")
    return _together(role, is_zone, "one zone", _ONE_ZONE, jobs, or_finer=is_rack)


def _rack(job: Job, role: Role) -> Outcome:
    job.need_several()
    role.need_gpus()
    jobs = _child_jobs(job)
    if jobs > 1 and is_rack(exclusive(role)):
        return passed(f"each of {jobs} Jobs has one {exclusive(role)} to itself")
    return _together(role, is_rack, "as few racks as possible", _FEW_RACKS, jobs)


def _child_jobs(job: Job) -> int:
    """Return how many Jobs with ranks a JobSet makes, 1 for any other kind."""
    parts = mappings(mapping(job.body, "spec").get("replicatedJobs"))
    ranks = [one for one in parts if text(one.get("name")).lower() not in WITHOUT_RANKS]
    return sum(replicas(one.get("replicas")) or 1 for one in ranks) or 1


def _together(
    role: Role,
    wanted: Callable[[str], bool],
    expected: str,
    remedy: str,
    jobs: int,
    or_finer: Callable[[str], bool] = lambda key: False,
) -> Outcome:
    """Return whether pods are kept together in, and not spread over, one kind of location."""
    for key, must in spreads(role):
        if wanted(key):
            seen = f"topologySpreadConstraints spread the job over {key}"
            return (failed if must else warned)(seen, expected, f"remove the constraint; {remedy}")
    for key in filter(wanted, apart(role)):
        return failed(f"podAntiAffinity keeps pods apart by {key}", expected, remedy)
    bound = [key for key in sorted(required(role, jobs)) if wanted(key) or or_finer(key)]
    if bound:
        return passed(f"all pods share {bound[0]}")
    role.complete()
    near = [key for key in sorted(preferred(role)) if wanted(key) or or_finer(key)]
    if near:
        return passed(f"pods share {near[0]} if possible")
    return warned("nothing keeps the pods together", expected, remedy)


def _eviction(job: Job, role: Role) -> Outcome:
    if not role.gpus and not job.several:
        role.complete()
        raise NotApplicableError("one pod without GPUs")
    given = {name: text(role.annotations.get(name)) for name in KEPT}
    right = [f"{name}: {value}" for name, value in given.items() if value == KEPT[name]]
    wrong = [f"{name}: {value}" for name, value in given.items() if value and value != KEPT[name]]
    expected = "an annotation that keeps autoscalers from evicting ranks"
    remedy = 'set cluster-autoscaler.kubernetes.io/safe-to-evict: "false" on the pod template'
    if wrong:
        return failed(f"{wrong[0]} lets an autoscaler end the job", expected, remedy)
    if right:
        return passed(right[0])
    role.complete()
    return warned("no such annotation: an autoscaler may drain the node", expected, remedy)


MESHES = (
    ("istio", "sidecar.istio.io/inject", "false"),
    ("linkerd", "linkerd.io/inject", "disabled"),
    ("kuma", "kuma.io/sidecar-injection", "disabled"),
)
_PROXIES = frozenset({"istio-proxy", "linkerd-proxy", "kuma-sidecar", "envoy-sidecar"})


def _sidecar(job: Job, role: Role) -> Outcome:
    expected = "no service mesh between ranks"
    remedy = 'set the label sidecar.istio.io/inject: "false" on the pod template'
    for one in (*role.containers, *role.initializers):
        if text(one.get("name")) in _PROXIES:
            seen = f"container {text(one.get('name'))} intercepts all traffic, and never ends"
            return failed(seen, expected, "remove the container")
    known = {**mapping(role.metadata, "annotations"), **mapping(role.metadata, "labels")}
    for mesh, name, off in MESHES:
        value = text(known.get(name)).lower()
        if value and value != off:
            return failed(
                f"{name}: {value} injects a sidecar of {mesh}", expected, f"set {name}: {off}"
            )
    if any(name in known for _, name, _ in MESHES):
        return passed("no sidecar is injected")
    role.complete()
    job.need_several()
    return warned("nothing excludes a mesh of the namespace", expected, remedy)


def _bound_apart(job: Job) -> Outcome | None:
    """Return that parts are bound to different zones, None if they are not."""
    bound: dict[str, str] = {}
    for role in job.ranks:
        for key, value in mapping(role.spec, "nodeSelector").items():
            if is_zone(str(key)):
                bound.setdefault(text(value), role.name)
    if len(bound) < 2:
        return None
    seen = listed([f"{name} is bound to {where}" for where, name in bound.items()])
    return failed(seen, "one zone", "give all templates the same nodeSelector")


def zone(job: Job) -> Outcome:
    """Check that ranks are in one zone, or that their templates keep them there."""
    job.need_several()
    there = places(job, is_zone)
    if there is None:
        return _bound_apart(job) or of_ranks(_zone)(job)
    key, values = next(iter(there.items()))
    if len(values) == 1:
        return passed(f"all pods are in {next(iter(values))}")
    return failed(f"pods are in {described(values)} of {key}", "one zone", _ONE_ZONE)


def rack(job: Job) -> Outcome:
    """Check that ranks are in few racks, or that their templates keep them there."""
    job.need_several()
    there = places(job, is_shared_place) if job.uses_gpus else None
    if there is None:
        return of_ranks(_rack)(job)
    key, values = max(there.items(), key=lambda one: (len(one[1]), one[0]))
    if len(values) == 1:
        return passed(f"all pods are in {next(iter(values))} of {key}")
    counts = set(values.values())
    seen = f"pods are in {described(values)} of {key}"
    if len(counts) == 1 and counts != {1}:
        return passed(f"{seen}, equally many in each")
    return warned(seen, "as few racks as possible, with equally many pods in each", _FEW_RACKS)


eviction = of_ranks(_eviction)
sidecar = of_ranks(_sidecar)
