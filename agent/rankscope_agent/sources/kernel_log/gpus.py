"""The GPU at each PCI address, from the driver's procfs: index and UUID."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.contract.kernel.events import pci_address
from rankscope_agent.sources.kernel_files import names_in, read_text

MAX_GPUS = 64
UUID_FIELD = "GPU UUID:"

# The driver writes question marks for a GPU that it could not query.
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class GpuName:
    """A GPU's labels; `gpu` is its index by PCI address, the numbering of NVML and nvidia-smi."""

    gpu: str
    uuid: str


def gpu_names(procfs: Path) -> Mapping[str, GpuName]:
    """Return the node's GPUs by `domain:bus:device`; empty if the driver is not loaded."""
    folder = procfs / "driver" / "nvidia" / "gpus"
    names, _ = names_in(folder, MAX_GPUS)
    known = sorted((pci, name) for name in names if (pci := pci_address(name)) is not None)
    return {
        pci: GpuName(str(index), _uuid(read_text(folder / name / "information")))
        for index, (pci, name) in enumerate(known)
    }


def remembered(known: Mapping[str, GpuName], seen: Mapping[str, GpuName]) -> Mapping[str, GpuName]:
    """Return the names of GPUs, including those that the driver no longer lists or cannot query.

    A lost GPU keeps its index, and so do the others, which would be renumbered without it.
    """
    new = {
        pci: name
        for pci, name in seen.items()
        if pci not in known or name.uuid not in {"", known[pci].uuid}
    }
    return {**known, **new}


def _uuid(information: str) -> str:
    for line in information.splitlines():
        if line.startswith(UUID_FIELD):
            uuid = line.removeprefix(UUID_FIELD).strip()
            return uuid if _UUID.fullmatch(uuid) else ""
    return ""
