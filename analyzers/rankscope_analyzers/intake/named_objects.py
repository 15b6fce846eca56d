"""Reads objects of a cluster by their names: which exist, which do not, and which are unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rankscope_analyzers.intake.kubernetes_api import OK, Answer, Api, NoAnswerError
from rankscope_analyzers.text.sanitize import name as shown_name

Key = tuple[str, str, str]
"""Kind, namespace (empty for kinds without namespaces) and name."""

NOT_FOUND = 404
TIMEOUT_SECONDS = 20.0

MOST_READ = 512
"""Objects requested individually; a job names a few, however many pods it has."""

MOST_NODES_ONE_BY_ONE = 32
"""With more nodes all are listed, which takes one request for each 250 of them."""

NODES_OF_A_PAGE = 250
"""Nodes listed in one response: each has some 30 KiB, most of it names of images."""

MOST_PAGES = 80
SERVICES_OF_A_PAGE = 500
MOST_SERVICE_PAGES = 4

PATHS: Mapping[str, str] = {
    "NetworkAttachmentDefinition": "/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}"
    "/network-attachment-definitions/{name}",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}",
    "PersistentVolume": "/api/v1/persistentvolumes/{name}",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses/{name}",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps/{name}",
    "Node": "/api/v1/nodes/{name}",
    "TrainingRuntime": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}"
    "/trainingruntimes/{name}",
    "ClusterTrainingRuntime": "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/{name}",
}
"""The API path of each kind that is read. Secrets are not among them."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.:]{0,251}[a-z0-9])?")


@dataclass(slots=True)
class NamedObjects:
    """Objects that were requested.

    Args:
        found: those that exist.
        absent: those that do not exist according to the API server.
        unread: why others are unknown.
    """

    found: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    absent: set[Key] = field(default_factory=set)
    unread: dict[Key, str] = field(default_factory=dict)

    def knows(self, key: Key) -> bool:
        """Return True if it was requested before."""
        return key in self.found or key in self.absent or key in self.unread

    def read(self, api: Api, keys: Iterable[Key]) -> None:
        """Request what was not requested before; nodes all at once if they are many."""
        wanted = [key for key in dict.fromkeys(keys) if not self.knows(key)]
        nodes = [key for key in wanted if key[0] == "Node"]
        if len(nodes) > MOST_NODES_ONE_BY_ONE:
            self._list_nodes(api, nodes)
            wanted = [key for key in wanted if key[0] != "Node"]
        for number, key in enumerate(wanted):
            if number < MOST_READ:
                self._read(api, key)
            else:
                self.unread[key] = f"more than {MOST_READ} objects are named"

    def _read(self, api: Api, key: Key) -> None:
        kind, namespace, name = key
        if kind not in PATHS or not is_object_name(name) or (namespace and not _is_one(namespace)):
            self.unread[key] = f"{shown_name(name)!r} is not a valid name of a {kind}"
            return
        self.ask(api, key, PATHS[kind].format(namespace=namespace, name=name))

    def ask(self, api: Api, key: Key, path: str) -> None:
        """Read the object at a path; its value or absence is recorded under its key."""
        try:
            answer = api.get(path, {}, TIMEOUT_SECONDS)
        except NoAnswerError as error:
            self.unread[key] = str(error)
            return
        if answer.status == OK:
            self.found[key] = answer.body
        elif answer.status == NOT_FOUND:
            self.absent.add(key)
        else:
            self.unread[key] = _refusal(answer)

    def _list_nodes(self, api: Api, wanted: list[Key]) -> None:
        names = {name for _, _, name in wanted}
        why = _pages(api, "/api/v1/nodes", NODES_OF_A_PAGE, MOST_PAGES, self._keep_nodes(names))
        for key in wanted:
            if key in self.found:
                continue
            if why:
                self.unread[key] = why
            else:
                self.absent.add(key)

    def _keep_nodes(self, names: set[str]) -> Callable[[Mapping[str, Any]], None]:
        def keep(one: Mapping[str, Any]) -> None:
            metadata = one.get("metadata")
            name = metadata.get("name") if isinstance(metadata, dict) else None
            if name in names:  # labels alone: thousands of nodes with their images are large
                self.found["Node", "", str(name)] = {"metadata": metadata}

        return keep

    def read_services(self, api: Api, namespace: str) -> str:
        """Record the services of a namespace; return why they are not all known, or ""."""

        def keep(one: Mapping[str, Any]) -> None:
            metadata = one.get("metadata")
            if isinstance(metadata, dict):
                self.found["Service", namespace, str(metadata.get("name"))] = one

        if not _is_one(namespace):
            return f"{shown_name(namespace)!r} is not a valid namespace"
        path = f"/api/v1/namespaces/{namespace}/services"
        return _pages(api, path, SERVICES_OF_A_PAGE, MOST_SERVICE_PAGES, keep)


def is_object_name(name: str) -> bool:
    """Return True for a valid name of an object in a path."""
    return _NAME.fullmatch(name) is not None


def _is_one(namespace: str) -> bool:
    return "." not in namespace and _NAME.fullmatch(namespace) is not None


def _pages(
    api: Api, path: str, size: int, most: int, keep: Callable[[Mapping[str, Any]], None]
) -> str:
    """Pass each object of a list on; return why not all of them were read, else an empty text."""
    query = {"limit": str(size)}
    for _ in range(most):
        try:
            answer = api.get(path, query, TIMEOUT_SECONDS)
        except NoAnswerError as error:
            return str(error)
        if answer.status != OK:
            return _refusal(answer)
        for one in _items(answer):
            keep(one)
        metadata = answer.body.get("metadata")
        after = metadata.get("continue") if isinstance(metadata, dict) else None
        if not isinstance(after, str) or not after:
            return ""
        query = {"limit": str(size), "continue": after}
    return f"there are more than {most * size} of them"


def _items(answer: Answer) -> Iterator[Mapping[str, Any]]:
    items = answer.body.get("items")
    return (one for one in (items if isinstance(items, list) else ()) if isinstance(one, dict))


def _refusal(answer: Answer) -> str:
    return " ".join(filter(None, (f"the API server answers {answer.status}", answer.message)))
