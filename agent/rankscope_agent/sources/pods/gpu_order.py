"""The node's GPUs in the order that CUDA uses for equal GPUs: by PCI address.

They are read from the NVIDIA driver's own files, /proc/driver/nvidia/gpus/<address>/information, so
that no library and no privilege is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_GPUS = 64
MAX_INFORMATION_BYTES = 8192

_LINE = re.compile(r"^(GPU UUID|Device Minor|GPU Excluded):\s*(\S+)\s*$", re.MULTILINE)
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """A GPU of the node; `pci` is its full address, `minor` the number of its device file."""

    pci: str
    uuid: str
    minor: int | None


def read_gpus(procfs: Path) -> Sequence[NodeGpu]:
    """Return the node's GPUs by ascending PCI address; empty if the driver is not loaded.

    Those that the driver excludes are left out: nobody can use them.
    """
    folder = procfs / "driver" / "nvidia" / "gpus"
    try:
        names = sorted(entry.name.lower() for entry in folder.iterdir())
    except OSError:
        return ()
    found = (_read(folder, name) for name in names[:MAX_GPUS] if _ADDRESS.fullmatch(name))
    return tuple(gpu for gpu in found if gpu)


def _read(folder: Path, address: str) -> NodeGpu | None:
    try:
        with (folder / address / "information").open("rb") as file:
            text = file.read(MAX_INFORMATION_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    fields = dict(_LINE.findall(text))
    if fields.get("GPU Excluded") == "Yes":  # the driver's numbers leave it out
        return None
    minor = fields.get("Device Minor", "")
    uuid = fields.get("GPU UUID", "")
    number = int(minor) if minor.isascii() and minor.isdigit() else None
    return NodeGpu(address, uuid, number) if uuid.startswith("GPU-") else None


def gpu_of_rank(
    local_rank: int | None,
    local_world_size: int | None,
    held: Sequence[str],
    gpus: Sequence[NodeGpu],
    stated: str = "",
) -> str:
    """Return the UUID of the GPU that a rank uses; empty if it cannot be determined.

    What its process states counts if it may use that GPU. Otherwise, if each rank has a device, a
    rank uses that of its local rank, as in every launcher's template; a container's only GPU is
    used by its processes.

    Args:
        local_rank: among the processes of its container, or of the node outside of pods.
        local_world_size: the number of these processes.
        held: UUIDs of the container's GPUs, in any order; of all the node's outside of pods.
        gpus: the node's GPUs, which determine the order.
        stated: the UUID by its process, without a prefix; empty if that does not say.
    """
    for uuid in (f"GPU-{stated}", f"MIG-{stated}"):
        if uuid in held:
            return uuid
    if any(gpu.uuid == f"GPU-{stated}" for gpu in gpus):  # one that is not the rank's to use
        return ""
    if len(held) == 1 and local_world_size in {None, 1}:
        return held[0]
    if local_rank is None or local_world_size != len(held) or local_rank >= len(held):
        return ""
    order: Mapping[str, int] = {gpu.uuid: index for index, gpu in enumerate(gpus)}
    if any(uuid not in order for uuid in held):
        return ""
    return sorted(held, key=lambda uuid: order[uuid])[local_rank]
