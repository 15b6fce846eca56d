"""PCI functions in sysfs and procfs: their addresses, and which of them are virtual."""

from __future__ import annotations

import re
from pathlib import Path

PCI_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""Domain, bus, device, function: `0000:3b:00.0`."""


def is_virtual_function(device: Path) -> bool:
    """Return True if a device's directory is that of a virtual function (SR-IOV) of another one."""
    return (device / "physfn").exists()
