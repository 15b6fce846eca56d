"""A training job as its manifest describes it: its parts, and what their pods get."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.preflight.shell_scripts import run_lines
from rankscope_analyzers.preflight.step_target import Target
from rankscope_analyzers.preflight.values import (
    Object,
    mapping,
    mappings,
    number,
    text,
    texts,
)
from rankscope_analyzers.workloads.quantities import quantity

GPU = re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.*)|amd\.com/gpu")
# Device plugins of Mellanox, SR-IOV and shared RDMA, the NVIDIA network operator and EFA.
RDMA = re.compile(
    r"rdma/.+|nvidia\.com/hostdev.*|.*infiniband.*|.*/[^/]*(nics?|hca|roce|rdma)[^/]*|vpc\.amazonaws\.com/efa"
)
EFA = "vpc.amazonaws.com/efa"


class UndecidedError(Exception):
    """Data that a check needs cannot be read; the message says which, and why."""


class NotApplicableError(Exception):
    """There is nothing to check; the message says why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is known in addition to the manifests.

    Args:
        checkpoint_path: directory that checkpoints are written to.
        checkpoint_seconds: the longest time that a checkpoint took.
        target: duration and exchanged bytes of a step.
        configuration: of the cluster, None if none was given.
    """

    checkpoint_path: str | None = None
    checkpoint_seconds: float | None = None
    target: Target = field(default_factory=Target)
    configuration: Configuration | None = None


Key = tuple[str, str, str]
"""Kind, namespace (empty for kinds without namespaces) and name of an object."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Other objects: those in the manifests, or those requested from the API server.

    Args:
        objects: by kind, namespace and name.
        unread: why requested objects are unknown.
        absent: objects that do not exist according to the API server.
    """

    objects: Mapping[Key, Object] = field(default_factory=dict)
    unread: Mapping[Key, str] = field(default_factory=dict)
    absent: Collection[Key] = frozenset()

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return an object, None if it is unknown."""
        return self.objects.get((kind, namespace, name))

    def lacks(self, kind: str, namespace: str, name: str) -> bool:
        """Return True if there is no such object, rather than that it is unknown."""
        return (kind, namespace, name) in self.absent

    def unknown(self, kind: str, namespace: str, name: str) -> str:
        """Return why an object is unknown, as the end of a sentence about it."""
        if self.lacks(kind, namespace, name):
            return "does not exist"
        why = self.unread.get((kind, namespace, name))
        return f"is not read: {why}" if why else "is not among the manifests"

    def of_kind(self, kind: str) -> Iterator[tuple[str, str, Object]]:
        """Yield namespace, name and object of all known objects of a kind."""
        for (one, namespace, name), found in self.objects.items():
            if one == kind:
                yield namespace, name, found


@dataclass(frozen=True, slots=True)
class NodeInterface:
    """A network interface of a node.

    Args:
        up: None if unknown.
        mtu: as the node writes it, empty if unknown.
    """

    up: bool | None
    mtu: str


@dataclass(frozen=True)  # without slots: what checks ask again and again is looked up once
class Role:
    """Pods of a job that are made from one template.

    Args:
        name: its name in the job: Worker, launcher, a replicated job's name.
        replicas: how many there are, None if the manifest does not specify it.
        metadata: of the template.
        spec: of the pod.
        has_ranks: True if they compute, unlike a launcher or an initializer.
        missing: why the template is incomplete, empty if all of it is known.
        status: of an existing pod.
    """

    name: str
    replicas: int | None
    metadata: Object
    spec: Object
    has_ranks: bool = True
    missing: str = ""
    status: Object = field(default_factory=dict)

    @property
    def annotations(self) -> Object:
        """Return the annotations of the pods."""
        return mapping(self.metadata, "annotations")

    @property
    def labels(self) -> Object:
        """Return the labels of the pods."""
        return mapping(self.metadata, "labels")

    @property
    def is_pod(self) -> bool:
        """Return True for a pod itself, False for a template of pods, which has no name."""
        return bool(self.name) and text(self.metadata.get("name")) == self.name

    @property
    def launches(self) -> bool:
        """Return True if it starts ranks elsewhere, as MPI's launcher does."""
        label = text(self.labels.get("training.kubeflow.org/job-role"))
        return "launcher" in {self.name.lower(), label.lower()}

    @property
    def containers(self) -> Sequence[Object]:
        """Return the containers that are not initializers."""
        return mappings(self.spec.get("containers"))

    @property
    def initializers(self) -> Sequence[Object]:
        """Return the containers that are started before, including sidecars that go on running."""
        return mappings(self.spec.get("initContainers"))

    @cached_property
    def trainer(self) -> Object:
        """Return the container that computes: the first with GPUs, else the first."""
        for one in self.containers:
            if any(GPU.fullmatch(name) for name in resources(one)):
                return one
        return self.containers[0] if self.containers else {}

    @cached_property
    def gpus(self) -> int:
        """Return the number of GPUs of a pod."""
        return _count(self.trainer, GPU)

    @cached_property
    def rdma(self) -> Mapping[str, float]:
        """Return the RDMA devices of a pod by the name of the resource."""
        found = resources(self.trainer)
        return {name: count for name, count in found.items() if RDMA.fullmatch(name) and count}

    @cached_property
    def command(self) -> Sequence[str]:
        """Return the words of the container's command and arguments, shell scripts split too."""
        return [word for part in self._parts for word in part.split()]

    @cached_property
    def _parts(self) -> Sequence[str]:
        parts = (*texts(self.trainer.get("command")), *texts(self.trainer.get("args")))
        return [run_lines(part) if len(part.split()) > 1 else part for part in parts]

    @property
    def scripts(self) -> Sequence[str]:
        """Return the parts of the command that are shell scripts: of more than one word."""
        return [part for part in self._parts if len(part.split()) > 1]

    def words(self) -> Iterator[tuple[str, str]]:
        """Yield each word of the command with the next one, empty after the last."""
        words = self.command
        return zip_longest(words, words[1:], fillvalue="")

    def need_gpus(self) -> None:
        """Leave a check that is about GPUs if the pods have none.

        Raises:
            NotApplicableError: they have none.
            UndecidedError: they may have some.
        """
        self._need(self.gpus, "GPUs", "the job has no GPUs")

    def need_rdma(self) -> None:
        """Leave a check that is about RDMA devices if the pods request none.

        Raises:
            NotApplicableError: they request none.
            UndecidedError: they may do so.
        """
        self._need(self.rdma, "RDMA devices", "the job requests no RDMA devices")

    def _need(self, devices: object, what: str, without: str) -> None:
        if not devices:
            self.complete()
            self.need_no_claims(what)
            raise NotApplicableError(without)

    def need_no_claims(self, what: str) -> None:
        """Make sure that the container takes no devices by claims (dynamic resource allocation).

        Raises:
            UndecidedError: it does.
        """
        if mappings(mapping(self.trainer, "resources").get("claims")):
            raise UndecidedError(
                f"the container has resource claims, and whether these are for {what} is not read"
            )

    def complete(self) -> None:
        """Make sure that what is absent from the template is absent from the pods.

        Raises:
            UndecidedError: the template is incomplete.
        """
        if self.missing:
            raise UndecidedError(self.missing)


def resources(container: Object) -> Mapping[str, float]:
    """Return a container's limits and requests as numbers."""
    found = {
        **mapping(container, "resources", "requests"),
        **mapping(container, "resources", "limits"),
    }
    counts = {str(name): quantity(value) for name, value in found.items()}
    return {name: count for name, count in counts.items() if count is not None}


def _count(container: Object, names: re.Pattern[str]) -> int:
    return int(sum(n for name, n in resources(container).items() if names.fullmatch(name)))


@dataclass(frozen=True)  # without slots, as a role: each check of each pod asks for all pods
class Job:
    """A training job.

    Args:
        kind: of its object, such as PyTorchJob.
        namespace: empty if the manifest leaves it open.
        name: empty if it is generated.
        source: the file and line of its manifest.
        roles: its parts.
        body: the object itself.
        cluster: other objects in the manifests.
        settings: what is known in addition.
        missing: why the object that creates its pods is unknown, empty if it is known or there is
            none.
        interfaces: of the nodes that it is to run on, by node and name; None if that was not
            requested.
    """

    kind: str
    namespace: str
    name: str
    source: str
    roles: Sequence[Role]
    body: Object
    cluster: Cluster = field(default_factory=Cluster)
    settings: Settings = field(default_factory=Settings)
    missing: str = ""
    interfaces: Mapping[str, Mapping[str, NodeInterface]] | None = None

    @cached_property
    def ranks(self) -> Sequence[Role]:
        """Return the parts that compute."""
        return [role for role in self.roles if role.has_ranks]

    @cached_property
    def launcher(self) -> Role | None:
        """Return the part that starts ranks elsewhere, None if there is none."""
        return next((role for role in self.roles if role.launches), None)

    @cached_property
    def pods(self) -> int:
        """Return how many pods compute; a part of unknown size counts as one."""
        return sum(1 if role.replicas is None else role.replicas for role in self.ranks)

    @property
    def several(self) -> bool:
        """Return True if ranks in different pods communicate.

        Raises:
            UndecidedError: the manifest does not specify the number of pods.
        """
        if self.pods > 1:
            return True
        if any(role.replicas is None for role in self.ranks):
            raise UndecidedError("the manifest does not say how many pods there are")
        return False

    @cached_property
    def uses_gpus(self) -> bool:
        """Return True if a part has GPUs."""
        return any(role.gpus for role in self.ranks)

    def need_several(self) -> None:
        """Leave a check that is about more than one pod.

        Raises:
            NotApplicableError: there is only one pod.
            UndecidedError: the manifest does not specify the number of pods.
        """
        if not self.several:
            raise NotApplicableError("the job has one pod")


def annotation_json(value: object) -> object:
    """Return the content of a JSON annotation, None if it is not JSON."""
    try:
        return untrusted_json.read(text(value))
    except ValueError:
        return None


def replicas(value: object, default: int | None = 1) -> int | None:
    """Return a number of replicas, the default if none is given."""
    return default if value is None else number(value)
