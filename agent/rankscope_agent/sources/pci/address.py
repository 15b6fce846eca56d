"""Addresses of PCI functions in the notation of sysfs and procfs."""

from __future__ import annotations

import re

PCI_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""Domain, bus, device, function: `0000:3b:00.0`."""
