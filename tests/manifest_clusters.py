"""Rules on what an installation does to its cluster: what it ends, renames and leaves."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from admission import denials, mutated
from manifest_parts import Objects, Rule, named, selects, workloads

PART_OF, INSTANCE = "app.kubernetes.io/part-of", "app.kubernetes.io/instance"
LEVEL = "pod-security.kubernetes.io/"
TOKEN_SECONDS = range(600, 3601)
"""The API server takes no less; of 3607 it makes a year, as for tokens of programs that know no
expiry (kubernetes pkg/serviceaccount, WarnOnlyBoundTokenExpirationPeriod)."""
VIRTUAL = {"type": "virtual-kubelet", "eks.amazonaws.com/compute-type": "fargate"}
"""Labels of nodes without a kubelet of their own: of the virtual kubelet, and of EKS' Fargate."""
OF_CLUSTER = {
    *("ClusterRole", "ClusterRoleBinding", "PriorityClass"),
    *(
        f"{name}AdmissionPolicy{more}"
        for name in ("Validating", "Mutating")
        for more in ("", "Binding")
    ),
}
GPU_LABELS = {
    *("nvidia.com/gpu.present", "cloud.google.com/gke-accelerator"),
    *("eks.amazonaws.com/instance-gpu-manufacturer", "karpenter.k8s.aws/instance-gpu-manufacturer"),
    "kubernetes.azure.com/accelerator",
}
"""Of GPU feature discovery, GKE, EKS Auto Mode, Karpenter on AWS, and AKS."""
NOT_CANONICAL = re.compile(r".*\..*|[0-9]*000[mkMGTPE]?")
FILLED_IN = (
    (re.compile(r"\.resourceRules\.\d+$"), "scope"),
    (re.compile(r"\.ingress\.\d+\.ports\.\d+$"), "protocol"),
    (re.compile(r"\.serviceAccountToken$"), "expirationSeconds"),
    (re.compile(r"\.fieldRef$"), "apiVersion"),
    (re.compile(r"elabelings\.\d+$"), "action"),
)
"""What API servers fill in within lists that are compared as a whole (pkg/apis/*/v1/defaults.go of
Kubernetes, and the definitions of the Prometheus operator)."""


def nothing_is_preempted(objects: Objects) -> Iterator[str]:
    """A pod without a class has that of the cluster's default, which may preempt, too."""
    classes = {one["metadata"]["name"]: one for one in objects if one["kind"] == "PriorityClass"}
    for name, found in classes.items():
        if found.get("preemptionPolicy") != "Never":
            yield f"PriorityClass/{name}: ends running pods"
        if "globalDefault" in found:
            yield f"PriorityClass/{name}: globalDefault is not ours to say"
    for name, _, pod in workloads(objects):
        if pod.get("priorityClassName") not in classes:
            yield f"{name}: may preempt by priority class {pod.get('priorityClassName')}"


def agents_go_before_what_waits(objects: Objects) -> Iterator[str]:
    values = {o["metadata"]["name"]: o["value"] for o in objects if o["kind"] == "PriorityClass"}
    for name, found, pod in workloads(objects):
        value = values.get(pod.get("priorityClassName"), 0)
        if found["kind"] == "DaemonSet" and value != 1_000_000_000:  # the highest of users
            yield f"{name}: waits behind others at priority {value}"


def objects_are_removed_by_label_and_namespaces_are_not(objects: Objects) -> Iterator[str]:
    (home,) = homes(objects)
    for found in objects:
        labels = found["metadata"].get("labels") or {}
        removed = (labels.get(PART_OF), labels.get(INSTANCE)) == ("rankscope", home)
        if removed is (found["kind"] == "Namespace"):
            yield f"{named(found)}: removal by label takes it or leaves it wrongly: {labels}"


def namespaces_are_ours_and_allow_what_is_in_them(objects: Objects) -> Iterator[str]:
    for found in objects:
        if found["kind"] != "Namespace":
            continue
        labels = found["metadata"].get("labels") or {}
        if {key: labels.get(LEVEL + key) for key in ("enforce", "audit", "warn")} != {
            **dict.fromkeys(("enforce", "audit", "warn"), "privileged")
        }:
            yield f"{named(found)}: does not allow host paths, or warns of them"
        if {found["metadata"]["name"]} != homes(objects):
            yield f"{named(found)}: is not where the agents are"


def homes(objects: Objects) -> set[str]:
    """Return the namespaces that agents are in."""
    return {one["metadata"]["namespace"] for one in objects if one["kind"] == "DaemonSet"}


def names_of_the_cluster_end_in_the_namespace(objects: Objects) -> Iterator[str]:
    """Or a second installation takes the first one's rights, and takes them along when it goes."""
    (home,) = homes(objects)
    for found in objects:
        of_cluster = "namespace" not in found["metadata"] and found["kind"] != "Namespace"
        if not of_cluster and found["kind"] in OF_CLUSTER:
            yield f"{named(found)}: is of no namespace"
        if of_cluster and found["metadata"]["name"].partition(".")[2] != home:
            yield f"{named(found)}: a second installation has the same name"


def tokens_live_an_hour_at_most(objects: Objects) -> Iterator[str]:
    for name, _, pod in workloads(objects):
        for volume in pod.get("volumes", ()):
            for source in volume.get("projected", {}).get("sources", ()):
                seconds = source.get("serviceAccountToken", {}).get("expirationSeconds", 3600)
                if seconds not in TOKEN_SECONDS:
                    yield f"{name}: expirationSeconds {seconds}"


def pods_go_where_a_kubelet_of_linux_is(objects: Objects) -> Iterator[str]:
    for name, found, pod in workloads(objects):
        if pod.get("nodeSelector") != {"kubernetes.io/os": "linux"}:
            yield f"{name}: goes to nodes of another kernel"
        terms = affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution", {})
        if found["kind"] == "DaemonSet":
            for term in terms.get("nodeSelectorTerms") or [{"matchExpressions": []}]:
                avoided = {
                    (one["key"], *one.get("values", ()))
                    for one in term["matchExpressions"]
                    if one["operator"] == "NotIn"
                }
                if not avoided >= set(VIRTUAL.items()):
                    yield f"{name}: goes to virtual nodes"


def affinity(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = pod.get("affinity", {}).get("nodeAffinity", {})
    return found


def watches_leave_nodes_with_gpus_to_jobs(objects: Objects) -> Iterator[str]:
    for name, found, pod in workloads(objects):
        wishes = affinity(pod).get("preferredDuringSchedulingIgnoredDuringExecution", ())
        keys = {
            one["key"]
            for wish in wishes
            for one in wish["preference"]["matchExpressions"]
            if one["operator"] in {"NotIn", "DoesNotExist"}
        }
        if found["kind"] in {"Deployment", "StatefulSet"} and keys != GPU_LABELS:
            yield f"{name}: takes places on nodes with GPUs"


def replicas_are_drained_one_at_a_time(objects: Objects) -> Iterator[str]:
    budgets = [one["spec"] for one in objects if one["kind"] == "PodDisruptionBudget"]
    for name, found, _ in workloads(objects):
        labels = found["spec"]["template"]["metadata"]["labels"]
        own = [b for b in budgets if selects(b["selector"]["matchLabels"], labels)]
        if found["spec"].get("replicas", 1) > 1 and not any(
            b.get("maxUnavailable") == 1 and b.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
            for b in own
        ):
            yield f"{name}: a drain may end all of it, or wait for what does not run"


def objects_are_spelt_as_they_are_stored(objects: Objects) -> Iterator[str]:
    """Or each `kubectl apply` changes them anew, and who compares sees a difference for ever."""
    for found in objects:
        for path, value in leaves(found):
            if value in ([], {}):
                yield f"{named(found)}: {path} is empty, and not stored"
            for place, name in FILLED_IN:
                if place.search(path) and name not in value:
                    yield f"{named(found)}: {path} is stored with its {name}"
            if quantities(path) and not canonical(str(value)):
                yield f"{named(found)}: {path} {value} is stored in another spelling"


def canonical(value: str) -> bool:
    """Return True if a quantity has the largest unit that it can have, and no fraction."""
    binary = re.fullmatch(r"([0-9]+)[KMGTP]i", value)
    return not NOT_CANONICAL.fullmatch(value) and not (binary and int(binary[1]) % 1024 == 0)


def quantities(path: str) -> bool:
    return bool(re.search(r"\.(requests|limits|hard)\.[^.]+$|\.sizeLimit$", path))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each part with the path to it."""
    yield path, value
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}.{key}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from leaves(part, f"{path}.{number}")


TRAINER = {"cpu": "7", "memory": "11Gi", "ephemeral-storage": "13Gi"}
"""Amounts that no policy would think of by itself."""


def injected_containers_ask_for_what_the_trainer_asks_for(objects: Objects) -> Iterator[str]:
    """Other amounts are refused by one LimitRange or another, and with them the training pod."""
    for found in objects:
        if found["kind"] == "MutatingAdmissionPolicy":
            asked = asked_beside_a_trainer(json.dumps(found["spec"]))
            if asked != {"requests": TRAINER, "limits": TRAINER}:
                yield f"{named(found)}: asks otherwise than the trainer: {asked}"


@functools.cache  # of a policy, most mistakes in manifests change nothing
def asked_beside_a_trainer(policy: str) -> Mapping[str, Any]:
    resources = {"requests": TRAINER, "limits": TRAINER | {"nvidia.com/gpu": "8"}}
    container = {"name": "trainer", "image": "a:1", "resources": resources}
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [container]}}
    found = mutated(json.loads(policy), pod, {"rankscope.dev/probe": "enabled"})
    (added,) = found["spec"]["initContainers"]
    asked: Mapping[str, Any] = added["resources"]
    return asked


def policies_on_nodes_have_no_types_and_no_gaps(objects: Objects) -> Iterator[str]:
    """With types, API servers warn of each field that their own schema of a node does not have."""
    policies = [one for one in objects if one["kind"] == "ValidatingAdmissionPolicy"]
    (home,) = homes(objects)
    for found in policies:
        spec = found["spec"]
        for part in (*spec.get("variables", ()), *spec["validations"]):
            if re.search(r"(?<!dyn\()\b(object|oldObject)\b", part["expression"]):
                yield f"{named(found)}: {part['expression']} has the types of one version"
    refused = {name for one in policies for name in refusals_of(json.dumps(one["spec"]), home)}
    writes = any(
        "nodes/status" in rule["resources"]
        for one in objects
        if one["kind"] == "ClusterRole"
        for rule in one["rules"]
    )
    for name in {name for name, _, _ in REFUSED} - refused if policies or writes else ():
        yield f"no policy keeps the watch from {name}"


@functools.cache
def refusals_of(policy: str, namespace: str) -> list[str]:
    spec = json.loads(policy)
    watch = {"username": f"system:serviceaccount:{namespace}:rankscope-watch"}
    return [n for n, old, new in REFUSED if list(denials(spec, old, new, watch, "nodes"))]


def node(*conditions: Mapping[str, Any]) -> dict[str, Any]:
    status = {"conditions": list(conditions)}
    return {"metadata": {"name": "n1", "labels": {}}, "spec": {}, "status": status}


REFUSED = (
    ("creating nodes", None, node()),
    ("deleting nodes", node(), None),
    ("long messages", node(), node({"type": "RankscopeA", "message": "x" * 4096})),
    ("many conditions", node(), node(*({"type": f"Rankscope{n}"} for n in range(100)))),
)

CLUSTERS: tuple[Rule, ...] = (
    nothing_is_preempted,
    agents_go_before_what_waits,
    objects_are_removed_by_label_and_namespaces_are_not,
    namespaces_are_ours_and_allow_what_is_in_them,
    names_of_the_cluster_end_in_the_namespace,
    tokens_live_an_hour_at_most,
    pods_go_where_a_kubelet_of_linux_is,
    watches_leave_nodes_with_gpus_to_jobs,
    replicas_are_drained_one_at_a_time,
    objects_are_spelt_as_they_are_stored,
    injected_containers_ask_for_what_the_trainer_asks_for,
    policies_on_nodes_have_no_types_and_no_gaps,
)
