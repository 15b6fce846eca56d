"""Rules on what refers to what in rendered manifests, one short one each; see manifest_rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from manifest_parts import (
    PROBES,
    Objects,
    Rule,
    containers,
    named,
    pod_labels,
    repeats,
    selects,
    workloads,
)

POLICIES = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
BINDINGS = tuple(f"{kind}Binding" for kind in POLICIES)


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
        for repeated in repeats(names):
            yield f"{name}: volume {repeated} is declared twice"
    for name, _, container in containers(objects):
        paths = [mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts", ())]
        for repeated in repeats(paths):
            yield f"{name}: two volumes are mounted at {repeated}"


def selectors_match_the_template(objects: Objects) -> Iterator[str]:
    for name, found, _ in workloads(objects):
        labels = found["spec"]["template"]["metadata"]["labels"]
        # Jobs are given theirs.
        selector = found["spec"].get("selector", {"matchLabels": {}})
        if not selects(selector["matchLabels"], labels):
            yield f"{name}: selector does not match {labels}"


def probes_name_a_port(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        if name.startswith("Job"):
            continue
        ports = {port.get("name") for port in container.get("ports", ())}
        for kind in PROBES:
            port = container.get(kind, {}).get("httpGet", {}).get("port", "metrics")
            if port not in ports:
                yield f"{name}: {kind} asks port {port}"


def agents_are_restarted_by_a_port_of_its_own_alone(objects: Objects) -> Iterator[str]:
    """Others can keep the port of pages busy; readiness says so, and ends nothing."""
    for name, _, container in containers(objects):
        if not name.startswith("DaemonSet"):
            continue
        asked = {kind: container[kind]["httpGet"]["port"] for kind in PROBES}
        wanted = {"startupProbe": "health", "livenessProbe": "health", "readinessProbe": "metrics"}
        for kind in PROBES:
            if asked[kind] != wanted[kind]:
                yield f"{name}: {kind} asks the port {asked[kind]} and not {wanted[kind]}"


def ports_are_those_that_are_listened_on(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        listened = {
            flag: int(port)
            for flag, port in re.findall(
                r"--web\.(listen|health)-address=\S*:(\d+)", " ".join(container.get("args", ()))
            )
        }
        declared = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        for port, flag in (("metrics", "listen"), ("health", "health")):
            if declared.get(port) != listened.get(flag):
                yield f"{name}: port {port} is declared as {declared.get(port)}"


def arguments_use_variables_that_are_there(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        have = {variable["name"] for variable in container.get("env", ())}
        for used in re.findall(r"\$\((\w+)\)", " ".join(container.get("args", ()))):
            if used not in have:
                yield f"{name}: $({used}) is not in env"


OF_OPENSHIFT = {f"system:openshift:scc:{name}" for name in ("privileged", "nonroot-v2")}
"""Roles that every OpenShift has, one for each of its security context constraints."""


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
                given = (one["kind"], one["name"], one.get("namespace"))
                if given not in have and one["name"] not in OF_OPENSHIFT:
                    yield f"{named(found)}: {one['kind']} {one['name']} is not there"


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
        for kind in PROBES if name.startswith("DaemonSet") else ():
            asked = container[kind]["httpGet"]
            spoken = "HTTP" if asked["port"] == "health" else expected
            if asked.get("scheme", "HTTP") != spoken:
                yield f"{name}: {kind} does not speak {spoken}"
        if name.startswith(("Deployment", "StatefulSet")) and secure != any(
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


def ports_are_named_once(objects: Objects) -> Iterator[str]:
    for name, _, pod in workloads(objects):
        names = [port["name"] for c in pod["containers"] for port in c.get("ports", ())]
        for repeated in repeats(names):
            yield f"{name}: two ports are named {repeated}"


def files_that_arguments_name_are_mounted(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        places = [Path(mount["mountPath"]) for mount in container.get("volumeMounts", ())]
        for argument in container.get("args", ()):
            path = Path(argument.partition("=")[2])
            if path.is_absolute() and not any(path.is_relative_to(place) for place in places):
                yield f"{name}: {argument} is in no volume"


def services_lead_to_ports_of_pods(objects: Objects) -> Iterator[str]:
    """A service of what is not deployed, such as the watch, leads nowhere and may stay."""
    have = {
        (labels["app.kubernetes.io/name"], port.get("name"))
        for _, found, pod in workloads(objects)
        for labels in [found["spec"]["template"]["metadata"]["labels"]]
        for container in pod["containers"]
        for port in container.get("ports", ())
    }
    deployed = {name for name, _ in have}
    for found in objects:
        if found["kind"] == "Service" and found["metadata"]["name"] in deployed:
            selected = found["spec"]["selector"].get("app.kubernetes.io/name")
            for port in found["spec"]["ports"]:
                if (selected, port["targetPort"]) not in have:
                    yield f"{named(found)}: leads to no port {port['targetPort']} of a pod"


def network_policies_open_ports_of_pods(objects: Objects) -> Iterator[str]:
    names = {p.get("name") for _, _, c in containers(objects) for p in c.get("ports", ())}
    for found in objects:
        for rule in found["spec"]["ingress"] if found["kind"] == "NetworkPolicy" else ():
            for port in rule["ports"]:
                if port["port"] not in names:
                    yield f"{named(found)}: opens port {port['port']}, which no pod has"


def admission_policies_are_bound(objects: Objects) -> Iterator[str]:
    have = {found["metadata"]["name"] for found in objects if found["kind"] in POLICIES}
    bound = {found["spec"]["policyName"] for found in objects if found["kind"] in BINDINGS}
    for odd in have ^ bound:
        yield f"policy or binding {odd} has no counterpart"


REFERENCES: tuple[Rule, ...] = (
    mounts_have_a_volume_and_volumes_a_mount,
    volumes_and_places_are_given_once,
    selectors_match_the_template,
    probes_name_a_port,
    agents_are_restarted_by_a_port_of_its_own_alone,
    ports_are_those_that_are_listened_on,
    arguments_use_variables_that_are_there,
    accounts_and_roles_exist,
    monitors_find_ports_of_pods,
    schemes_agree,
    probes_come_out_of_the_agents_image,
    policies_select_pods,
    ports_are_named_once,
    files_that_arguments_name_are_mounted,
    services_lead_to_ports_of_pods,
    network_policies_open_ports_of_pods,
    admission_policies_are_bound,
)
