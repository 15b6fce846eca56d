"""What has to hold in rendered manifests beyond their schemas, one short rule each.

API servers reject the first dozen at apply time; the others go through and fail, or harm, later.
Each rule takes all objects and yields complaints that name the object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from manifest_clusters import CLUSTERS
from manifest_parts import Objects, Rule, containers, named, repeats, workloads
from manifest_references import REFERENCES
from quantities import quantity
from rankscope_analyzers.workloads.kinds import KINDS
from rankscope_analyzers.workloads.quotas import QUOTAS

HOST_PATH_TYPES = {
    *("", "Directory", "DirectoryOrCreate", "File", "FileOrCreate"),
    *("Socket", "CharDevice", "BlockDevice"),
}
PROPAGATIONS = {"None", "HostToContainer", "Bidirectional"}
FIELD_PATHS = re.compile(
    r"metadata\.(name|namespace|uid|labels\['[^']+'\]|annotations\['[^']+'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
)
CAPABILITIES = {"DAC_READ_SEARCH", "SYSLOG", "SYS_PTRACE"}
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9](-?[a-z0-9])*")
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
KEY = re.compile(rf"({NAME.pattern}/)?[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?")
HOST_PATHS = {
    *("/sys", "/sys/kernel/debug", "/var/log", "/var/log/pods"),
    *("/var/lib/kubelet/pods", "/var/lib/kubelet/pod-resources"),
}
MOST_ANNOTATED = 250 << 10  # room for other annotations is left
MOST_SAMPLES = 3000  # of a page: the agent leaves series off beyond 2,000


def host_paths_have_a_known_type(objects: Objects) -> Iterator[str]:
    for name, _, pod in workloads(objects):
        for volume in pod.get("volumes", ()):
            kind = volume.get("hostPath", {}).get("type", "")
            if kind not in HOST_PATH_TYPES:
                yield f"{name}: hostPath type {kind}"


def quantities_are_quantities(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        for group, resources in container.get("resources", {}).items():
            for resource, value in resources.items():
                if quantity(value) is None:
                    yield f"{name}: {group} {resource} quantity {value}"


def requests_are_within_limits(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        resources = container.get("resources", {})
        for resource, wanted in resources.get("requests", {}).items():
            most = quantity(resources.get("limits", {}).get(resource, wanted))
            if most is not None and (quantity(wanted) or 0) > most:
                yield f"{name}: requests more {resource} than its limit"


def memory_is_limited_and_cpu_is_not(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        limits = container.get("resources", {}).get("limits", {})
        if "memory" not in limits or "cpu" in limits:
            yield f"{name}: limits memory, and not cpu, which would throttle it"


def host_ports_are_the_containers_own(objects: Objects) -> Iterator[str]:
    for name, pod, container in containers(objects):
        for port in container.get("ports", ()):
            host = port.get("hostPort", port["containerPort"])
            if pod.get("hostNetwork") and host != port["containerPort"]:
                yield f"{name}: hostPort {host} is not the containerPort"


def privileges_do_not_contradict(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        context = container.get("securityContext", {})
        if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
            yield f"{name}: privileged without allowPrivilegeEscalation"


def port_names_are_service_names(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        for port in container.get("ports", ()):
            text = port.get("name", "a")
            if len(text) > 15 or not PORT_NAME.fullmatch(text):
                yield f"{name}: port name {text}"


def field_paths_exist(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        for variable in container.get("env", ()):
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            if path is not None and not FIELD_PATHS.fullmatch(path):
                yield f"{name}: fieldPath {path}"


def labels_are_labels(objects: Objects) -> Iterator[str]:
    for found in objects:
        template = found.get("spec", {}).get("template", {}).get("metadata", {})
        for owner in (found["metadata"], template):
            for key, value in (owner.get("labels") or {}).items():
                if not LABEL.fullmatch(str(value)) or not KEY.fullmatch(key):
                    yield f"{named(found)}: label {key}={value}"


def updates_can_go_on(objects: Objects) -> Iterator[str]:
    for name, found, _ in workloads(objects):
        update = found["spec"].get("updateStrategy", {}).get("rollingUpdate", {})
        if str(update.get("maxUnavailable", "1")) in {"0", "0%"} and not update.get("maxSurge"):
            yield f"{name}: maxUnavailable 0 lets no update begin"


def images_are_named_with_a_version(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        image = container.get("image", "")
        if not re.fullmatch(r"[a-z0-9.:/-]+(:(?!latest$)[\w.-]+|@sha256:[0-9a-f]{64})", image):
            yield f"{name}: image {image!r} has no version"


def propagations_are_known(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        for mount in container.get("volumeMounts", ()):
            if mount.get("mountPropagation", "None") not in PROPAGATIONS:
                yield f"{name}: mountPropagation {mount['mountPropagation']}"


def capabilities_are_few_and_spelt_as_kubernetes_does(objects: Objects) -> Iterator[str]:
    for name, pod, container in containers(objects):
        given = container.get("securityContext", {}).get("capabilities", {})
        added = list(given.get("add") or ())
        if given.get("drop") != ["ALL"]:
            yield f"{name}: does not drop all capabilities"
        if set(added) - CAPABILITIES or len(added) != len(set(added)):
            yield f"{name}: capabilities {added}"
        if "SYS_PTRACE" in added and not pod.get("hostPID"):
            yield f"{name}: SYS_PTRACE reaches nothing without hostPID"


def variables_are_given_once(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        names = [variable["name"] for variable in container.get("env", ())]
        for repeated in repeats(names):
            yield f"{name}: env {repeated} is given twice"


def containers_are_locked_down(objects: Objects) -> Iterator[str]:
    for name, pod, container in containers(objects):
        context = container.get("securityContext", {})
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: may gain privileges"
        if not context.get("readOnlyRootFilesystem"):
            yield f"{name}: root file system is writable"
        if pod.get("securityContext", {}).get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{name}: no seccomp profile"


def hosts_are_only_read(objects: Objects) -> Iterator[str]:
    for name, pod, container in containers(objects):
        host = {v["name"] for v in pod.get("volumes", ()) if "hostPath" in v}
        for mount in container.get("volumeMounts", ()):
            if mount["name"] in host and not mount.get("readOnly"):
                yield f"{name}: host path {mount['name']} is writable"


JOB_OBJECTS = {
    *(one.resource for one in KINDS),
    *(f"{resource}.{group}" for resource, group, *_ in QUOTAS),
    *(f"{resource}." for resource in ("pods", "nodes", "events")),
}
"""What a watch of the cluster's jobs reads: jobs, what they wait for, and where they run."""

STATE = "rankscope-watch-state"
STATES = [STATE, f"{STATE}-goodput"]
STATES_OF_SHARDS = [f"{STATE}-{number}{what}" for number in range(8) for what in ("", "-goodput")]
LEASES = (["rankscope-watch"], [f"rankscope-watch-{number}" for number in range(8)])


def _of_jobs_or_state(found: dict[str, Any], rule: dict[str, Any], verbs: set[str]) -> bool:
    """Return whether a rule is to read job objects, or to keep the state of a watch."""
    names = {f"{what}.{group}" for group in rule["apiGroups"] for what in rule["resources"]}
    keeps = (rule["apiGroups"], rule["resources"]) == ([""], ["configmaps"])
    states = rule.get("resourceNames") if found["kind"] == "Role" else None
    writes = verbs == {"get", "update"} and states in (STATES, STATES_OF_SHARDS)
    return (names <= JOB_OBJECTS and verbs == {"list", "watch"}) or (
        keeps and (writes or (verbs == {"get"} and states == [STATE]))
    )


PUBLISHES = (
    ({"list"}, ([""], ["nodes"])),
    ({"patch"}, ([""], ["nodes/status"])),
    ({"create"}, (["events.k8s.io"], ["events"])),
)
"""What the watch may do where it publishes conditions of nodes."""


def rights_are_to_read_jobs_and_to_hold_one_lease(objects: Objects) -> Iterator[str]:
    for found in objects:
        for rule in found.get("rules", ()) if "Role" in found["kind"] else ():
            verbs, what = set(rule["verbs"]), (rule["apiGroups"], rule["resources"])
            reads_pods = what == ([""], ["pods"]) and verbs <= {"list", "watch"}
            # Kubernetes cannot tell by name what is to be created.
            holds = verbs == {"create"} or (
                verbs == {"get", "update"} and rule.get("resourceNames") in LEASES
            )
            own = found["kind"] == "Role" and what == (["coordination.k8s.io"], ["leases"])
            publishes = "-watch" in found["metadata"]["name"] and (verbs, what) in PUBLISHES
            more = _of_jobs_or_state(found, rule, verbs)
            if not reads_pods and not (own and holds) and not more and not publishes:
                yield f"{named(found)}: {rule['verbs']} on {rule['resources']}"


def tokens_are_mounted_by_hand(objects: Objects) -> Iterator[str]:
    for name, _, pod in workloads(objects):
        if pod.get("automountServiceAccountToken") is not False:
            yield f"{name}: the service account's token is mounted unasked"


def host_networks_are_used_with_care(objects: Objects) -> Iterator[str]:
    for name, pod, container in containers(objects):
        if not pod.get("hostNetwork"):
            continue
        if pod.get("dnsPolicy") != "ClusterFirstWithHostNet":
            yield f"{name}: hostNetwork without the cluster's DNS"
        for argument in container.get("args", ()):
            if re.match(r"--web\.(listen|health)-address=:", argument):
                yield f"{name}: {argument} listens on every address of the host"


def host_paths_are_few(objects: Objects) -> Iterator[str]:
    for name, _, pod in workloads(objects):
        for volume in pod.get("volumes", ()):
            path = volume.get("hostPath", {}).get("path", "/sys")
            if path not in HOST_PATHS:
                yield f"{name}: host path {path} is none of ours"


def no_more_of_the_host_is_shared(objects: Objects) -> Iterator[str]:
    for name, found, pod in workloads(objects):
        if pod.get("hostIPC") or pod.get("shareProcessNamespace"):
            yield f"{name}: shares what it has no use for"
        context = pod.get("securityContext", {})
        if found["kind"] in {"Deployment", "StatefulSet"}:
            if not context.get("runAsNonRoot") or not context.get("runAsUser"):
                yield f"{name}: runs as root"
            if context.get("fsGroup") != context.get("runAsGroup"):
                yield f"{name}: its secrets are of another group than its process"
    for name, _, container in containers(objects):
        if {"seccompProfile", "runAsUser", "procMount"} & {*container.get("securityContext", {})}:
            yield f"{name}: sets for itself what its pod sets"


def monitors_limit_what_an_agent_may_send(objects: Objects) -> Iterator[str]:
    for found in objects:
        if found["kind"] in {"PodMonitor", "ServiceMonitor"}:
            of_agents = found["metadata"]["name"] == "rankscope-agent"
            if of_agents and found["spec"].get("sampleLimit") != MOST_SAMPLES:
                yield f"{named(found)}: sampleLimit is not {MOST_SAMPLES}"
            ends = found["spec"].get("podMetricsEndpoints") or found["spec"]["endpoints"]
            if not all(re.fullmatch(r"[0-9]+s", end["interval"]) for end in ends):
                yield f"{named(found)}: an interval is none"


def objects_fit_into_an_annotation(objects: Objects) -> Iterator[str]:
    """`kubectl apply` keeps a copy of each object in one, and annotations end at 256 KiB."""
    for found in objects:
        text = json.dumps(found, separators=(",", ":"))
        # Go writes these three marks as \\u003c and so on.
        if len(text) + 5 * sum(map(text.count, "<>&")) > MOST_ANNOTATED:
            yield f"{named(found)}: is too large for kubectl apply"


def names_are_names(objects: Objects) -> Iterator[str]:
    for found in objects:
        if not NAME.fullmatch(found["metadata"]["name"]):
            yield f"{named(found)}: is no name of an object"


RULES: tuple[Rule, ...] = (
    host_paths_have_a_known_type,
    quantities_are_quantities,
    requests_are_within_limits,
    memory_is_limited_and_cpu_is_not,
    host_ports_are_the_containers_own,
    privileges_do_not_contradict,
    port_names_are_service_names,
    field_paths_exist,
    labels_are_labels,
    updates_can_go_on,
    images_are_named_with_a_version,
    propagations_are_known,
    capabilities_are_few_and_spelt_as_kubernetes_does,
    variables_are_given_once,
    containers_are_locked_down,
    hosts_are_only_read,
    rights_are_to_read_jobs_and_to_hold_one_lease,
    tokens_are_mounted_by_hand,
    host_networks_are_used_with_care,
    host_paths_are_few,
    no_more_of_the_host_is_shared,
    monitors_limit_what_an_agent_may_send,
    objects_fit_into_an_annotation,
    names_are_names,
    *REFERENCES,
    *CLUSTERS,
)


def complaints(objects: Objects) -> list[str]:
    """Return what is wrong, by all rules."""
    return [complaint for rule in RULES for complaint in rule(objects)]
