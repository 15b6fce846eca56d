"""What is known about the node's pods besides the API server's data: devices, processes, failures.

The pods collector creates a new view every few seconds; others read the newest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankscope_agent.sources.pods.devices import Allocation, DeviceId
from rankscope_agent.sources.pods.gpu_order import NodeGpu
from rankscope_agent.sources.pods.process_scan import RankProcess


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device and the pod that holds it; `uuid` and `pci` are filled in if they can be derived.

    Args:
        pod_uid: empty if the API server has not listed the pod.
        rdma_device: a name such as mlx5_0, if sysfs has the PCI address.
    """

    allocation: Allocation
    device: DeviceId
    pod_uid: str
    uuid: str = ""
    rdma_device: str = ""


@dataclass(frozen=True, slots=True)
class PlacementView:
    """Devices and processes of the node at one time.

    Args:
        problems: why a source provides nothing, by source; absent if it works.
        processes: None if no scan has succeeded.
    """

    devices: Sequence[HeldDevice] = ()
    processes: Sequence[RankProcess] = ()
    gpus: Sequence[NodeGpu] = ()
    problems: Mapping[str, str] = field(default_factory=dict)

    def gpus_of(self, pod_uid: str, container: str | None = None) -> Sequence[str]:
        """Return the UUIDs of the GPUs that a pod holds exclusively, of one container or of all."""
        return tuple(
            held.uuid
            for held in self.devices
            if held.pod_uid == pod_uid
            and held.uuid
            and not held.device.shared
            and container in {None, held.allocation.container}
        )
