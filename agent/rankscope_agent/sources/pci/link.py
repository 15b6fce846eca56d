"""PCI links of adapters in sysfs: lanes, speed, and reported errors (AER)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.sources.kernel_files import read_text

UNKNOWN_WIDTH = 63
"""The value for a link whose device has fallen off the bus: all bits of the field are set."""

SEVERITIES = ("correctable", "nonfatal", "fatal")

MAX_TYPES = 64  # the specification has 8 correctable and 18 other errors

_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
_ERROR = re.compile(r"([A-Za-z]{1,32}) ([0-9]{1,20})")  # not TOTAL_ERR_COR and the like


@dataclass(frozen=True, slots=True)
class PciLink:
    """A link's current and maximum state; speeds in transfers per second and lane."""

    width: int
    max_width: int
    speed: float
    max_speed: float

    @property
    def ratio(self) -> float:
        """Bandwidth as a share of the maximum that the device supports."""
        return (self.width * self.speed) / (self.max_width * self.max_speed)


def parse_speed(text: str) -> float | None:
    """Read `32.0 GT/s PCIe`; return None for `Unknown`."""
    match = _SPEED.match(text)
    return float(match[1]) * 1e9 if match else None


def parse_width(text: str) -> int | None:
    """Read a number of lanes; return None for none and for that of a missing device."""
    width = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    return width if 0 < width < UNKNOWN_WIDTH else None


def read_link(device: Path) -> PciLink | None:
    """Return a device's link; None if one of its values is unknown."""
    width = parse_width(read_text(device / "current_link_width"))
    max_width = parse_width(read_text(device / "max_link_width"))
    speed = parse_speed(read_text(device / "current_link_speed"))
    max_speed = parse_speed(read_text(device / "max_link_speed"))
    if width is None or max_width is None or speed is None or max_speed is None:
        return None
    return PciLink(width, max_width, speed, max_speed)


def parse_errors(text: str) -> Mapping[str, int]:
    """Read a file of AER counters: a type and a number on each line; totals are left out."""
    found = {}
    for line in text.splitlines()[:MAX_TYPES]:
        match = _ERROR.fullmatch(line.strip())
        if match:
            found[match[1]] = int(match[2])
    return found


def read_errors(device: Path) -> Iterator[tuple[str, str, int]]:
    """Yield severity, type and count of the errors reported by a device, including zeros."""
    for severity in SEVERITIES:
        for kind, count in parse_errors(read_text(device / f"aer_dev_{severity}")).items():
            yield severity, kind, count
