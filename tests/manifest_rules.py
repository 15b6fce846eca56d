"""What has to hold in rendered manifests beyond their schemas, one short rule each.

API servers reject the first dozen at apply time; the others go through and fail, or harm, later.
Each rule takes all objects and yields complaints that name the object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

Objects = list[dict[str, Any]]
Rule = Callable[[Objects], Iterator[str]]

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
QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTPE]i?)?")
UNITS = {"m": Decimal("0.001"), **{u: Decimal(1000) ** n for n, u in enumerate("kMGTPE", 1)}}
UNITS |= {f"{u.upper()}i": Decimal(1024) ** n for n, u in enumerate("KMGTPE", 1)}
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9](-?[a-z0-9])*")
WORKLOADS = ("DaemonSet", "Deployment")
HTTPS_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def named(found: dict[str, Any]) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"


def workloads(objects: Objects) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield name, object and pod specification of what makes pods."""
    for found in objects:
        if found["kind"] in WORKLOADS:
            yield named(found), found, found["spec"]["template"]["spec"]


def containers(objects: Objects) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield name, pod specification and container."""
    for name, _, pod in workloads(objects):
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            yield f"{name}/{container['name']}", pod, container


def quantity(text: object) -> Decimal | None:
    match = QUANTITY.fullmatch(str(text))
    return Decimal(match[1]) * UNITS.get(match[2] or "", Decimal(1)) if match else None


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def pod_labels(objects: Objects) -> list[dict[str, str]]:
    return [w["spec"]["template"]["metadata"]["labels"] for _, w, _ in workloads(objects)]


def host_paths_have_a_known_type(objects: Objects) -> Iterator[str]:
    for name, _, pod in workloads(objects):
        for volume in pod.get("volumes", ()):
            kind = volume.get("hostPath", {}).get("type", "")
            if kind not in HOST_PATH_TYPES:
                yield f"{name}: hostPath type {kind}"


def mounts_have_a_volume_and_volumes_a_mount(objects: Objects) -> Iterator[str]:
    for name, _, pod in workloads(objects):
        have = {volume["name"] for volume in pod.get("volumes", ())}
        of_pod = [*pod.get("initContainers", ()), *pod["containers"]]
        used = {m["name"] for c in of_pod for m in c.get("volumeMounts", ())}
        for odd in have ^ used:
            yield f"{name}: volume or mount {odd} has no counterpart"


def volumes_and_places_are_given_once(objects: Objects) -> Iterator[str]:
    for name, _, pod in workloads(objects):
        names = [volume["name"] for volume in pod.get("volumes", ())]
        for repeated in {one for one in names if names.count(one) > 1}:
            yield f"{name}: volume {repeated} is declared twice"
    for name, _, container in containers(objects):
        paths = [mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts", ())]
        for repeated in {one for one in paths if paths.count(one) > 1}:
            yield f"{name}: two volumes are mounted at {repeated}"


def selectors_match_the_template(objects: Objects) -> Iterator[str]:
    for name, found, _ in workloads(objects):
        labels = found["spec"]["template"]["metadata"]["labels"]
        if not selects(found["spec"]["selector"]["matchLabels"], labels):
            yield f"{name}: selector does not match {labels}"


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
                if not LABEL.fullmatch(str(value)) or not LABEL.fullmatch(key.rpartition("/")[2]):
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


def tokens_live_ten_minutes_at_least(objects: Objects) -> Iterator[str]:
    for name, _, pod in workloads(objects):
        for volume in pod.get("volumes", ()):
            for source in volume.get("projected", {}).get("sources", ()):
                if source.get("serviceAccountToken", {}).get("expirationSeconds", 3600) < 600:
                    yield f"{name}: expirationSeconds below 600"


def propagations_are_known(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        for mount in container.get("volumeMounts", ()):
            if mount.get("mountPropagation", "None") not in PROPAGATIONS:
                yield f"{name}: mountPropagation {mount['mountPropagation']}"


def probes_name_a_port(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        ports = {port.get("name") for port in container.get("ports", ())}
        for kind in HTTPS_PROBES:
            port = container.get(kind, {}).get("httpGet", {}).get("port", "metrics")
            if port not in ports:
                yield f"{name}: {kind} asks port {port}"


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
        for repeated in {one for one in names if names.count(one) > 1}:
            yield f"{name}: env {repeated} is given twice"


def arguments_use_variables_that_are_there(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        have = {variable["name"] for variable in container.get("env", ())}
        for used in re.findall(r"\$\((\w+)\)", " ".join(container.get("args", ()))):
            if used not in have:
                yield f"{name}: $({used}) is not in env"


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


def rights_are_to_read_pods_alone(objects: Objects) -> Iterator[str]:
    for found in objects:
        for rule in found.get("rules", ()) if "Role" in found["kind"] else ():
            if set(rule["resources"]) - {"pods"} or set(rule["verbs"]) - {"list", "watch"}:
                yield f"{named(found)}: {rule['verbs']} on {rule['resources']}"


def accounts_and_roles_exist(objects: Objects) -> Iterator[str]:
    have = {
        (found["kind"], found["metadata"]["name"], found["metadata"].get("namespace"))
        for found in objects
    }
    for name, found, pod in workloads(objects):
        account = ("ServiceAccount", pod.get("serviceAccountName"))
        if (*account, found["metadata"].get("namespace")) not in have:
            yield f"{name}: service account {pod.get('serviceAccountName')} is not there"
    for found in objects:
        if found["kind"].endswith("RoleBinding"):
            own = found["metadata"].get("namespace")
            wanted = [{**found["roleRef"], "namespace": own}, *found["subjects"]]
            for one in wanted:
                if (one["kind"], one["name"], one.get("namespace")) not in have:
                    yield f"{named(found)}: {one['kind']} {one['name']} is not there"


def tokens_are_mounted_by_hand(objects: Objects) -> Iterator[str]:
    for name, _, pod in workloads(objects):
        if pod.get("automountServiceAccountToken") is not False:
            yield f"{name}: the service account's token is mounted unasked"


def namespaces_allow_what_is_in_them(objects: Objects) -> Iterator[str]:
    level = "pod-security.kubernetes.io/enforce"
    levels = {
        found["metadata"]["name"]: (found["metadata"].get("labels") or {}).get(level)
        for found in objects
        if found["kind"] == "Namespace"
    }
    for name, found, pod in workloads(objects):
        host = any("hostPath" in volume for volume in pod.get("volumes", ()))
        if host and levels.get(found["metadata"].get("namespace")) != "privileged":
            yield f"{name}: its namespace does not allow host paths"


def critical_pods_have_a_quota_that_speaks_of_them(objects: Objects) -> Iterator[str]:
    spoken_of = {
        (found["metadata"].get("namespace"), name)
        for found in objects
        if found["kind"] == "ResourceQuota"
        for term in found["spec"]["scopeSelector"]["matchExpressions"]
        if (term["scopeName"], term["operator"]) == ("PriorityClass", "In")
        for name in term["values"]
    }
    for name, found, pod in workloads(objects):
        wanted = pod.get("priorityClassName", "")
        place = (found["metadata"].get("namespace"), wanted)
        if wanted.startswith("system-") and place not in spoken_of:
            yield f"{name}: no quota speaks of priority class {wanted}"


def host_networks_are_used_with_care(objects: Objects) -> Iterator[str]:
    for name, pod, container in containers(objects):
        if not pod.get("hostNetwork"):
            continue
        if pod.get("dnsPolicy") != "ClusterFirstWithHostNet":
            yield f"{name}: hostNetwork without the cluster's DNS"
        if any(a.startswith("--web.listen-address=:") for a in container.get("args", ())):
            yield f"{name}: listens on every address of the host"


def monitors_find_ports_of_pods(objects: Objects) -> Iterator[str]:
    have = {
        (key, value, port.get("name"))
        for _, found, pod in workloads(objects)
        for key, value in found["spec"]["template"]["metadata"]["labels"].items()
        for container in pod["containers"]
        for port in container.get("ports", ())
    }
    for found in objects:
        if found["kind"] in {"PodMonitor", "ServiceMonitor"}:
            spec = found["spec"]
            for end in [*spec.get("podMetricsEndpoints", ()), *spec.get("endpoints", ())]:
                wanted = spec["selector"]["matchLabels"].items()
                present = all((k, v, end["port"]) in have for k, v in wanted)
                if not present and "watch" not in found["metadata"]["name"]:
                    yield f"{named(found)}: no pod has port {end['port']}"


def schemes_agree(objects: Objects) -> Iterator[str]:
    secure = any(
        "--web.config.file" in " ".join(c.get("args", ()))
        for name, _, c in containers(objects)
        if name.startswith("DaemonSet")
    )
    expected = "HTTPS" if secure else "HTTP"
    for name, _, container in containers(objects):
        for kind in HTTPS_PROBES if name.startswith("DaemonSet") else ():
            if container[kind]["httpGet"].get("scheme", "HTTP") != expected:
                yield f"{name}: {kind} does not speak {expected}"
        if name.startswith("Deployment") and secure != any(
            argument.startswith("--ca-file") for argument in container["args"]
        ):
            yield f"{name}: asks agents otherwise than by {expected}"
    for found in objects:
        for end in found.get("spec", {}).get("podMetricsEndpoints", ()):
            scheme = end.get("scheme", "http").upper()
            if "agent" in found["metadata"]["name"] and scheme != expected:
                yield f"{named(found)}: scrapes otherwise than by {expected}"


def probes_come_out_of_the_agents_image(objects: Objects) -> Iterator[str]:
    agents = {c["image"] for name, _, c in containers(objects) if name.startswith("DaemonSet")}
    for found in objects:
        for variable in found.get("spec", {}).get("variables", ()):
            if variable["name"] == "image" and variable["expression"].strip("'") not in agents:
                yield f"{named(found)}: image {variable['expression']} is not the agent's"


def policies_select_pods(objects: Objects) -> Iterator[str]:
    for found in objects:
        if found["kind"] == "NetworkPolicy" and "agent" in found["metadata"]["name"]:
            wanted = found["spec"]["podSelector"]["matchLabels"]
            if not any(selects(wanted, labels) for labels in pod_labels(objects)):
                yield f"{named(found)}: selects no pod"


RULES: tuple[Rule, ...] = (
    host_paths_have_a_known_type,
    mounts_have_a_volume_and_volumes_a_mount,
    volumes_and_places_are_given_once,
    selectors_match_the_template,
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
    tokens_live_ten_minutes_at_least,
    propagations_are_known,
    probes_name_a_port,
    capabilities_are_few_and_spelt_as_kubernetes_does,
    variables_are_given_once,
    arguments_use_variables_that_are_there,
    containers_are_locked_down,
    hosts_are_only_read,
    rights_are_to_read_pods_alone,
    accounts_and_roles_exist,
    tokens_are_mounted_by_hand,
    namespaces_allow_what_is_in_them,
    critical_pods_have_a_quota_that_speaks_of_them,
    host_networks_are_used_with_care,
    monitors_find_ports_of_pods,
    schemes_agree,
    probes_come_out_of_the_agents_image,
    policies_select_pods,
)


def complaints(objects: Objects) -> list[str]:
    """Return what is wrong, by all rules."""
    return [complaint for rule in RULES for complaint in rule(objects)]
