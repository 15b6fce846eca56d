"""The NVIDIA GPUs that the kernel lists, without a call to the driver's library."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from rankscope_agent.contract.kernel.events import pci_address
from rankscope_agent.sources.kernel_files import read_text

NVIDIA_PROC = "driver/nvidia/gpus"
"""The driver's list of its GPUs in procfs, one directory each."""

PCI_DEVICES = "bus/pci/devices"

NVIDIA_VENDOR = "0x10de"

DISPLAY_CLASS = "0x03"
"""First byte of a display controller's PCI class: VGA (0x0300) and 3D (0x0302), the class of data
center GPUs. A GPU's audio and USB functions have other classes."""

_INFORMATION = re.compile(r"^(Device Minor|GPU Excluded):\s*(\w+)", re.MULTILINE)


def gpus_of_driver(procfs: Path) -> frozenset[str] | None:
    """Return the PCI addresses in the driver's list; None if there is no list."""
    try:
        names = [entry.name for entry in (procfs / NVIDIA_PROC).iterdir()]
    except OSError:
        return None
    return _addresses(names)


def gpus_given(procfs: Path, device_files: Path) -> frozenset[str]:
    """Return the PCI addresses of those in the driver's list that this process may use.

    An option of the driver excludes GPUs for everybody; containers have the device files of those
    that they were given; Slurm's device cgroup, which access(2) respects, hides those of others.
    """
    try:
        folders = list((procfs / NVIDIA_PROC).iterdir())
    except OSError:
        return frozenset()
    return _addresses(one.name for one in folders if _is_given(one, device_files))


def _is_given(folder: Path, device_files: Path) -> bool:
    known = dict(_INFORMATION.findall(read_text(folder / "information")))
    if "Device Minor" not in known or known.get("GPU Excluded") == "Yes":
        return False
    return os.access(device_files / f"nvidia{known['Device Minor']}", os.R_OK | os.W_OK)


def gpus_on_bus(sysfs: Path) -> frozenset[str]:
    """Return the PCI addresses of NVIDIA's GPUs in sysfs; empty without a sysfs."""
    try:
        devices = list((sysfs / PCI_DEVICES).iterdir())
    except OSError:
        return frozenset()
    return _addresses(device.name for device in devices if _is_gpu(device))


def _addresses(names: Iterable[str]) -> frozenset[str]:
    """Return those of names that are PCI addresses, as the kernel log's events have them, too."""
    return frozenset(filter(None, map(pci_address, names)))


def _is_gpu(device: Path) -> bool:
    return (
        device.name.count(":") == 2
        and read_text(device / "vendor") == NVIDIA_VENDOR
        and read_text(device / "class").startswith(DISPLAY_CLASS)
    )
