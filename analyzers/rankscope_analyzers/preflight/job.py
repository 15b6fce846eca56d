"""A training job as its manifest describes it: its parts, and what their pods are given."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.configuration.values import Configuration
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
    r"rdma/.+|.*infiniband.*|.*/[^/]*(nics?|hca|roce|rdma)[^/]*|vpc\.amazonaws\.com/efa"
)
EFA = "vpc.amazonaws.com/efa"


class UndecidedError(Exception):
    """What a check needs cannot be read; the message says what, and why."""


class NotApplicableError(Exception):
    """There is nothing to check; the message says why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is known beside the manifests.

    Args:
        checkpoint_path: folder that checkpoints are written to.
        checkpoint_seconds: the longest time that a checkpoint took.
        target: what a step is to take, and what it exchanges.
        configuration: of the cluster, None where none was given.
    """

    checkpoint_path: str | None = None
    checkpoint_seconds: float | None = None
    target: Target = field(default_factory=Target)
    configuration: Configuration | None = None


Key = tuple[str, str, str]
"""Kind, namespace (empty for what belongs to no namespace) and name of an object."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Other objects: those that the manifests hold, or those that the API server was asked for.

    Args:
        objects: by kind, namespace and name.
        unread: why objects that were asked for are not known.
        absent: objects that the API server says are not there.
    """

    objects: Mapping[Key, Object] = field(default_factory=dict)
    unread: Mapping[Key, str] = field(default_factory=dict)
    absent: Collection[Key] = frozenset()

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return an object, None where it is not known."""
        return self.objects.get((kind, namespace, name))

    def lacks(self, kind: str, namespace: str, name: str) -> bool:
        """Return True if there is no such object, rather than that it is unknown."""
        return (kind, namespace, name) in self.absent

    def unknown(self, kind: str, namespace: str, name: str) -> str:
        """Return why an object is not known, as the end of a sentence about it."""
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
        up: None where that is not known.
        mtu: as the node writes it, empty where it is not known.
    """

    up: bool | None
    mtu: str


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of a job that are made from one template.

    Args:
        name: what the job calls them: Worker, launcher, a replicated job's name.
        replicas: how many there are, None where the manifest does not say it.
        metadata: of the template.
        spec: of the pod.
        has_ranks: they compute, unlike a launcher or an initializer.
        missing: why the template is incomplete, empty where all of it is known.
        status: of a pod that exists.
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
        """The annotations of the pods."""
        return mapping(self.metadata, "annotations")

    @property
    def labels(self) -> Object:
        """The labels of the pods."""
        return mapping(self.metadata, "labels")

    @property
    def is_pod(self) -> bool:
        """Return True for a pod itself, False for a template of pods, which has no name."""
        return bool(self.name) and text(self.metadata.get("name")) == self.name

    @property
    def launches(self) -> bool:
        """Return True for what starts ranks elsewhere, as MPI's launcher does."""
        label = text(self.labels.get("training.kubeflow.org/job-role"))
        return "launcher" in {self.name.lower(), label.lower()}

    @property
    def containers(self) -> Sequence[Object]:
        """The containers that are not initializers."""
        return mappings(self.spec.get("containers"))

    @property
    def trainer(self) -> Object:
        """The container that computes: the first with GPUs, else the first."""
        for one in self.containers:
            if any(GPU.fullmatch(name) for name in resources(one)):
                return one
        return self.containers[0] if self.containers else {}

    @property
    def gpus(self) -> int:
        """GPUs of a pod."""
        return _count(self.trainer, GPU)

    @property
    def rdma(self) -> Mapping[str, float]:
        """RDMA devices of a pod by the name of the resource."""
        found = resources(self.trainer)
        return {name: count for name, count in found.items() if RDMA.fullmatch(name) and count}

    @property
    def command(self) -> Sequence[str]:
        """The words of the container's command and arguments, a shell's script split as well."""
        return [
            word
            for part in (*texts(self.trainer.get("command")), *texts(self.trainer.get("args")))
            for word in part.split()
        ]

    def words(self) -> Iterator[tuple[str, str]]:
        """Yield each word of the command with the next one, empty after the last."""
        words = self.command
        return zip_longest(words, words[1:], fillvalue="")

    def complete(self) -> None:
        """Make sure that what is absent from the template is absent from the pods.

        Raises:
            UndecidedError: the template is only a part.
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


@dataclass(frozen=True, slots=True)
class Job:
    """A training job.

    Args:
        kind: of its object, such as PyTorchJob.
        namespace: empty where the manifest leaves it open.
        name: empty where it is generated.
        source: the file and line that it stands in.
        roles: its parts.
        body: the object itself.
        cluster: what else the manifests hold.
        settings: what is known beside them.
        missing: why the object that makes its pods is not known, empty where it is or none does.
        interfaces: of the nodes that it is to run on, by node and name; None if that was not asked.
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

    @property
    def ranks(self) -> Sequence[Role]:
        """The parts that compute."""
        return [role for role in self.roles if role.has_ranks]

    @property
    def pods(self) -> int:
        """How many pods compute; a part of unknown size counts as one."""
        return sum(1 if role.replicas is None else role.replicas for role in self.ranks)

    @property
    def several(self) -> bool:
        """Return True if ranks talk to each other from pod to pod.

        Raises:
            UndecidedError: the manifest does not say how many pods there are.
        """
        if self.pods > 1:
            return True
        if any(role.replicas is None for role in self.ranks):
            raise UndecidedError("the manifest does not say how many pods there are")
        return False

    @property
    def uses_gpus(self) -> bool:
        """Return True if a part has GPUs."""
        return any(role.gpus for role in self.ranks)

    @property
    def uses_rdma(self) -> bool:
        """Return True if a part asks for RDMA devices."""
        return any(role.rdma for role in self.ranks)

    def need_several(self) -> None:
        """Leave a check that is about more than one pod.

        Raises:
            NotApplicableError: there is one pod only.
            UndecidedError: the manifest does not say how many pods there are.
        """
        if not self.several:
            raise NotApplicableError("the job has one pod")

    def need_rdma(self) -> None:
        """Leave a check that is about RDMA.

        Raises:
            NotApplicableError: no part asks for RDMA devices.
            UndecidedError: a part is not known in full.
        """
        if not self.uses_rdma:
            for role in self.ranks:
                role.complete()
            raise NotApplicableError("the job asks for no RDMA devices")


def annotation_json(value: object) -> object:
    """Return what a JSON annotation holds, None where it is no JSON."""
    try:
        return untrusted_json.read(text(value))
    except ValueError:
        return None


def replicas(value: object, default: int | None = 1) -> int | None:
    """Return a number of replicas, the default where none is given."""
    return default if value is None else number(value)
