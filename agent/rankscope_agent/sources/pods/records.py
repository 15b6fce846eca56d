"""What is kept of a pod: a small value built from the API server's JSON, whatever its shape.

Pods' specs can contain secrets in plain environment values, so only variables for ranks, sizes and
transports are kept, and no reference to a secret or a config map is ever followed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from rankscope_agent.contract.redaction import is_kept
from rankscope_agent.sources.pods.json_fields import (
    MAX_TEXT,
    count_of,
    mapping_of,
    mappings_of,
    moment_of,
    text_of,
    texts_of,
)
from rankscope_agent.sources.pods.pod_status import (
    Failure,
    container_failure,
    disruption,
    pod_failure,
    waiting_reason,
)

log = logging.getLogger(__name__)

MAX_ENVIRONMENT_TEXT = 4096
"""Characters kept of an environment value; TF_CONFIG of a large job is the longest that is read."""

MAX_IMAGE_TEXT = 512
"""Characters kept of an image: a registry's name, a path of 255 (OCI distribution) and a digest."""

MAX_ENTRIES = 128
"""Labels and annotations kept of a pod, and variables of all its containers: an object may have ten
thousand of them, and so may each pod of a node."""

MAX_KEPT_TEXT = 32 << 10
"""Total characters kept of a pod's annotations, and of its variables: an object may have 1.5 MiB,
of which launchers' own take some 5 KiB."""

MAX_RESOURCES = 16
"""Extended resources kept of a container: kinds of GPUs, of their partitions, and of network
ports."""

MAX_CONTAINERS = 64
"""Containers of a pod that are read, many times what any launcher creates."""

MAX_PROBLEM = 300
"""Characters kept of a failure: it may quote what the pod says."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of an object."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """A device in the pod's status; `health` is Healthy, Unhealthy or Unknown."""

    container: str
    resource: str
    device: str
    health: str


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod.

    Args:
        name: its name.
        container_id: bare id without the runtime's scheme; empty before it was created.
        restarts: how often it was restarted.
        environment: variables that `is_kept` allows and whose value is known.
        unresolved: such variables whose value is in a secret or otherwise out of reach.
        limits: extended resources by name, in devices.
        started: whether the container is running.
        image: its image, by digest if the status has one, else by name.
        waiting: why it waits, a word of `contract.pod_reasons`; empty if it does not.
        failure: its newest failure; None if it had none.
        started_unix_seconds: since when it has been running; 0 if it is not or if unknown.
    """

    name: str
    container_id: str
    restarts: int
    environment: Mapping[str, str]
    unresolved: frozenset[str]
    limits: Mapping[str, int]
    started: bool
    image: str = ""
    waiting: str = ""
    failure: Failure | None = None
    started_unix_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; labels and annotations are complete except for the limits on length and number.

    Args:
        created_unix_seconds: 0 if the server did not say.
        phase: Pending, Running, Succeeded, Failed or Unknown; empty if absent.
        reason: the reason of the phase, such as Evicted; usually empty.
        health: devices whose health is in the status (Kubernetes 1.31 and newer, behind a feature
            gate).
        failure: why it failed as a whole, such as by eviction; None if its containers did.
        disruption: why it is evicted from its node; None if it is not.
        problem: why nothing but its identity could be read; empty if all was.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    phase: str = ""
    reason: str = ""
    created_unix_seconds: float = 0.0
    deleting: bool = False
    owner: Owner | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    health: tuple[DeviceHealth, ...] = ()
    scheduling_group: str = ""
    failure: Failure | None = None
    disruption: Failure | None = None
    problem: str = ""

    @property
    def ended(self) -> bool:
        """Return True if no container of it will ever run again."""
        return self.phase in {"Succeeded", "Failed"}


class PodError(ValueError):
    """An object is not a pod; the argument says what is missing."""


def parse_pod(data: object) -> Pod:
    """Build a pod from its JSON; parts of the wrong type count as absent.

    Raises:
        PodError: there is no uid, namespace or name.
    """
    document = mapping_of(data)
    metadata = mapping_of(document.get("metadata"))
    uid, namespace, name = (text_of(metadata.get(key)) for key in ("uid", "namespace", "name"))
    if not (uid and namespace and name):
        raise PodError(f"a pod has uid, namespace and name, got {[uid, namespace, name]}")
    named = Pod(uid, namespace, name)
    try:
        return _read(named, document)
    except Exception as error:  # what one pod says must not cost the others of its node
        log.debug("pods: pod %s/%s", namespace, name, exc_info=True)
        return replace(named, problem=f"{error!a}"[:MAX_PROBLEM])


def _read(named: Pod, document: Mapping[str, Any]) -> Pod:
    """Return a pod with all that its JSON says."""
    metadata, spec = mapping_of(document.get("metadata")), mapping_of(document.get("spec"))
    status = mapping_of(document.get("status"))
    annotations = texts_of(metadata.get("annotations"), MAX_ENVIRONMENT_TEXT)
    labels = texts_of(metadata.get("labels"), MAX_TEXT)
    fields = _fields(named, spec, labels, annotations)
    return replace(
        named,
        node=text_of(spec.get("nodeName")),
        phase=text_of(status.get("phase")),
        reason=text_of(status.get("reason")),
        created_unix_seconds=moment_of(metadata.get("creationTimestamp")),
        deleting=bool(metadata.get("deletionTimestamp")),
        owner=_controller(metadata.get("ownerReferences")),
        labels=_TextBudget().fitting(labels),
        annotations=_TextBudget().fitting(
            {key: annotations[key] for key in filter(_is_relevant, annotations)}
        ),
        containers=tuple(_containers(spec, status, fields, _end_begins(metadata, status))),
        health=tuple(_health(status)),
        scheduling_group=_scheduling_group(spec),
        failure=pod_failure(status),
        disruption=disruption(status),
    )


def _end_begins(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> float:
    """Return when the pod as a whole began to end, in Unix seconds; infinity if it did not.

    The timestamp of a deletion is later than the request by the grace period.
    """
    asked = moment_of(metadata.get("deletionTimestamp"))
    asked -= count_of(metadata.get("deletionGracePeriodSeconds"))
    taken, failed = disruption(status), pod_failure(status)
    begins = [asked] if metadata.get("deletionTimestamp") else []
    begins += [taken.unix_seconds] if taken else []
    # The ends of its containers are then part of it.
    begins += [0.0] if failed else []
    return min(begins, default=math.inf)


class _TextBudget:
    """The limits on number and total length of one kind of text per pod."""

    def __init__(self) -> None:
        self._entries, self._characters = MAX_ENTRIES, MAX_KEPT_TEXT

    def fitting(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        """Return those that fit, in their own order; the shortest are chosen first."""
        kept = set()
        for key, value in sorted(texts.items(), key=lambda text: len(text[0]) + len(text[1])):
            self._entries -= 1
            self._characters -= len(key) + len(value)
            if self._entries < 0 or self._characters < 0:
                break
            kept.add(key)
        return {key: value for key, value in texts.items() if key in kept}


def _is_relevant(annotation: str) -> bool:
    """Leave out what clients store for themselves: whole specs with everything in them."""
    return not annotation.startswith(("kubectl.kubernetes.io/", "objectset.rio.cattle.io/"))


def _fields(
    pod: Pod, spec: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the values that `valueFrom.fieldRef` may refer to, by path."""
    named = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": text_of(spec.get("nodeName")),
    }
    named.update({f"metadata.labels['{key}']": value for key, value in labels.items()})
    named.update({f"metadata.annotations['{key}']": value for key, value in annotations.items()})
    return named


def _containers(
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    fields: Mapping[str, str],
    end_begins: float,
) -> Iterator[Container]:
    # Init containers with a restart policy are sidecars: they run along with the others, on
    # devices.
    statuses = {
        text_of(entry.get("name")): entry
        for key in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        for entry in mappings_of(status.get(key))
    }
    listed = [
        (key, entry)
        for key in ("containers", "initContainers", "ephemeralContainers")
        for entry in mappings_of(spec.get(key))
    ]
    budget = _TextBudget()
    for key, entry in listed[:MAX_CONTAINERS]:
        name = text_of(entry.get("name"))
        found = mapping_of(statuses.get(name))
        environment, unresolved = _environment(entry.get("env"), fields, budget)
        yield Container(
            name=name,
            container_id=text_of(found.get("containerID")).rpartition("://")[2],
            restarts=count_of(found.get("restartCount")),
            environment=environment,
            unresolved=unresolved,
            limits=_limits(mapping_of(entry.get("resources"))),
            started="running" in mapping_of(found.get("state")),
            image=_image(entry, found),
            waiting=waiting_reason(found, init=_is_init(key, entry)),
            failure=_failure(key, entry, found, end_begins),
            started_unix_seconds=moment_of(
                mapping_of(mapping_of(found.get("state")).get("running")).get("startedAt")
            ),
        )


def _is_init(key: str, entry: Mapping[str, Any]) -> bool:
    return key == "initContainers" and entry.get("restartPolicy") != "Always"


def _failure(
    key: str, entry: Mapping[str, Any], found: Mapping[str, Any], end_begins: float
) -> Failure | None:
    """Return a container's failure; the ends of sidecars and debug containers are not failures.

    The kubelet ends sidecars with signals when all other containers have completed.
    """
    if key == "containers" or _is_init(key, entry):
        return container_failure(found, init=_is_init(key, entry), until=end_begins)
    return None


def _image(entry: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return an image's digest reference, without Docker's scheme for pulled images."""
    digest = text_of(found.get("imageID"), MAX_IMAGE_TEXT).removeprefix("docker-pullable://")
    return digest or text_of(entry.get("image"), MAX_IMAGE_TEXT)


def _environment(
    entries: object, fields: Mapping[str, str], budget: _TextBudget
) -> tuple[Mapping[str, str], frozenset[str]]:
    """Resolve what can be resolved and fits; later entries win, as in the container."""
    known: dict[str, str] = {}
    unknown: set[str] = set()
    for entry in mappings_of(entries):
        name, value = text_of(entry.get("name")), _value(entry, fields)
        if not is_kept(name):
            continue
        known.pop(name, None)
        unknown.discard(name)
        if value is None or "$(" in value:  # $(VAR) may expand to a variable that is not kept
            unknown.add(name)
        else:
            known[name] = value
    return budget.fitting(known), frozenset(budget.fitting(dict.fromkeys(unknown, "")))


def _value(entry: Mapping[str, Any], fields: Mapping[str, str]) -> str | None:
    """Return an entry's value; None if it cannot be determined from the pod alone."""
    source = entry.get("valueFrom")
    if source is None:
        return text_of(entry.get("value"), MAX_ENVIRONMENT_TEXT)
    path = mapping_of(mapping_of(source).get("fieldRef")).get("fieldPath")
    return fields.get(path) if isinstance(path, str) else None


def _limits(resources: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the extended resources: those with a domain in their name, such as nvidia.com/gpu."""
    limits = mapping_of(resources.get("limits"))
    extended = {
        key[:MAX_TEXT]: count_of(value)
        for key, value in limits.items()
        if "/" in key and count_of(value) and not key.startswith("hugepages-")
    }
    return dict(islice(extended.items(), MAX_RESOURCES))


def _health(status: Mapping[str, Any]) -> Iterator[DeviceHealth]:
    """Yield devices' health: containerStatuses[].allocatedResourcesStatus[].resources[]."""
    for container in mappings_of(status.get("containerStatuses")):
        for resource in mappings_of(container.get("allocatedResourcesStatus")):
            for device in mappings_of(resource.get("resources")):
                yield DeviceHealth(
                    container=text_of(container.get("name")),
                    resource=text_of(resource.get("name")),
                    device=text_of(device.get("resourceID")),
                    health=text_of(device.get("health")) or "Healthy",
                )


def _controller(references: object) -> Owner | None:
    for entry in mappings_of(references):
        if entry.get("controller") is True:
            fields = (text_of(entry.get(key)) for key in ("apiVersion", "kind", "name", "uid"))
            return Owner(*fields)
    return None


def _scheduling_group(spec: Mapping[str, Any]) -> str:
    """Return the gang of upstream Kubernetes: schedulingGroup since 1.36, workloadRef in 1.35."""
    group = mapping_of(spec.get("schedulingGroup")) or mapping_of(spec.get("workloadRef"))
    return text_of(group.get("podGroupName") or group.get("name"))
