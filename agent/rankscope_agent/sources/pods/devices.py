"""The devices held by each container, from the kubelet's PodResources answer.

Message layout: kubernetes staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. Formats of
device ids: NVIDIA's device plugin uses `GPU-<uuid>`, `MIG-<uuid>`, and either with `::<replica>` if
a GPU is shared by time slicing or MPS; GKE's uses `nvidia<minor>`, `nvidia<minor>/gi<id>` and
`nvidia<minor>/vgpu<n>`; SR-IOV plugins use PCI addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rankscope_agent.sources.pods.protobuf import messages, text

MAX_DEVICES = 65536
"""Devices read of one answer, far more than 110 pods that share GPUs a hundredfold have."""

DeviceKind = Literal["gpu", "rdma", "other"]

_GPU_RESOURCE = re.compile(r"nvidia\.com/(gpu|mig-|vgpu)|amd\.com/gpu|gpu\.intel\.com/")
_RDMA_RESOURCE = re.compile(
    r"rdma/|vpc\.amazonaws\.com/efa|[a-z0-9.-]*/[a-z0-9_.-]*(?:rdma|roce|infiniband|hca|ibp?_|nic)"
)
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_NVIDIA = re.compile(rf"((?:GPU|MIG)-{_UUID})(?:::(\d{{1,4}}))?", re.IGNORECASE)
_GKE = re.compile(r"nvidia(\d{1,3})(?:/(?:gi\d{1,2}|vgpu(\d{1,3})))?")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DeviceId:
    """The parts of a device's id; what it does not contain is None or empty.

    Args:
        uuid: GPU or MIG UUID, without the number of a replica.
        gpu: minor number of the GPU.
        pci: full address with function.
        shared: whether other containers can hold the same device at the same time.
    """

    uuid: str = ""
    gpu: int | None = None
    pci: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """One device held by one container.

    Args:
        device: the id as reported by the kubelet; for dynamic resource allocation pool/device.
        resource: resource name, or driver of the claim.
    """

    namespace: str
    pod: str
    container: str
    resource: str
    device: str

    @property
    def kind(self) -> DeviceKind:
        """Return the kind of device, according to its resource's name."""
        if _GPU_RESOURCE.match(self.resource) or self.resource == "gpu.nvidia.com":
            return "gpu"
        return "rdma" if _RDMA_RESOURCE.match(self.resource) else "other"


def parse_device_id(device: str) -> DeviceId:
    """Parse a device id; one of unknown format has no parts."""
    if match := _NVIDIA.fullmatch(device):
        prefix, _, digits = match[1].partition("-")
        return DeviceId(uuid=f"{prefix.upper()}-{digits.lower()}", shared=match[2] is not None)
    if match := _GKE.fullmatch(device):
        whole = "/" not in device
        return DeviceId(gpu=int(match[1]) if whole else None, shared=match[2] is not None)
    if _PCI.fullmatch(device):
        return DeviceId(pci=device.lower())
    return DeviceId()


def parse_pod_resources(message: bytes) -> Sequence[Allocation]:
    """Read a ListPodResourcesResponse, at most `MAX_DEVICES` devices of it.

    Raises:
        WireError: the bytes are not such a message.
    """
    found: list[Allocation] = []
    for pod in messages(memoryview(message), 1):
        name, namespace = text(pod, 1), text(pod, 2)
        for container in messages(pod, 3):
            found.extend(_allocations(namespace, name, container))
        if len(found) >= MAX_DEVICES:
            return found[:MAX_DEVICES]
    return found


def _allocations(namespace: str, pod: str, container: memoryview) -> Iterator[Allocation]:
    name = text(container, 1)
    for devices in messages(container, 2):
        resource = text(devices, 1)
        for device in messages(devices, 2):
            text_id = bytes(device).decode("utf-8", "replace")
            yield Allocation(namespace, pod, name, resource, text_id)
    for dynamic in messages(container, 5):
        for claim in messages(dynamic, 4):
            yield Allocation(namespace, pod, name, text(claim, 2), _claimed(claim))


def _claimed(claim: memoryview) -> str:
    """Return the name of a claimed device: the UUID in its CDI names if any, else pool/device."""
    for cdi in messages(claim, 1):
        named = _NVIDIA.search(text(cdi, 1))
        if named:
            return named[1]
    return f"{text(claim, 3)}/{text(claim, 4)}"
