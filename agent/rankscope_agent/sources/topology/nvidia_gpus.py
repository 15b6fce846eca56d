"""The NVIDIA GPUs of a node with their UUIDs, from the driver's procfs, without NVML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rankscope_agent.sources.kernel_files import names_in, read_text
from rankscope_agent.sources.pci.address import PCI_FUNCTION

MAX_GPUS = 64

_UUID = re.compile(r"^GPU UUID:\s+(GPU-[0-9a-f-]{36})\s*$", re.MULTILINE)


def parse_uuid(text: str) -> str | None:
    """Return the UUID in `information`; None if the driver has lost it (`GPU-????...`)."""
    match = _UUID.search(text)
    return match[1] if match else None


def nvidia_gpus(procfs: Path) -> Mapping[str, str]:
    """Return UUIDs by PCI function."""
    root = procfs / "driver" / "nvidia" / "gpus"
    found = {}
    for name in names_in(root, MAX_GPUS)[0]:
        uuid = parse_uuid(read_text(root / name / "information"))
        if uuid is not None and PCI_FUNCTION.fullmatch(name.lower()):
            found[name.lower()] = uuid
    return found
