"""Single NVLinks of a GPU: series only for links that are down, underused or have errors.

The total of all links is on `rankscope_gpu_nvlink_*` in every run. Single links are read more
rarely: there are 18 of them, and they all look the same if nothing is wrong, because NVSwitches
spread traffic evenly over them.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.sources.gpus.nvml import (
    MAX_NVLINKS,
    NOT_SUPPORTED,
    NVLINK_COUNTERS,
    SUCCESS,
    UNSUPPORTED_CODES,
    Device,
    NvmlError,
)
from rankscope_agent.sources.gpus.readings import KIBI, Value

PERIOD_SECONDS = 10.0
"""Time between two readings of single links: a failure lasts longer than this, and a hundred calls
a second would take the driver's lock as often."""

DEVIATING_SHARE = 0.5
"""A link is underused if it carries less than half as much as its median sibling: a bad link that
keeps retrying. Carrying more than twice as much is not a fault of the link, and is not reported."""

QUIET_BYTES = 10e6
"""Traffic of the median link between two readings below which shares are random: 1 MB a second."""

BYTE_FIELDS: Sequence[tuple[int, int, float]] = ((138, 139, KIBI), (202, 204, 1.0))
"""Fields of sent and received data, and their unit: for generations 2 to 4, and for generation
5."""


_BRIDGED = re.compile(r"\b(?:PCIE|NVL|RTX|QUADRO|TITAN|GEFORCE|A30|A40|ACTIVE)\b", re.IGNORECASE)
"""Products that are cards: bridges connect any number of their links, or none, and the driver
reports the others as inactive. On boards (SXM, HGX, GB200) all links are connected."""


def may_lack_bridges(model: str) -> bool:
    """Return True if links of a GPU of this product name may be unconnected by design."""
    return _BRIDGED.search(model) is not None


class NvlinkReader:
    """Reads the links of one GPU; called by one thread only.

    Args:
        model: the GPU's product name. Of a card that bridges connect, only links that were seen up
            can be down.
        mig: whether it is partitioned. MIG takes down the links of some boards (Fabric Manager User
            Guide, "Interoperability with MIG").
    """

    def __init__(self, model: str = "", *, mig: bool = False) -> None:
        self._due = 0.0
        self._values: tuple[Value, ...] = ()
        self._bridged = may_lack_bridges(model)
        self._all_connected = bool(model) and not self._bridged and not mig
        self._seen_up: set[int] = set()
        self._seen_down: set[int] = set()
        self._seen_deviating: set[int] = set()
        self._bytes: Mapping[int, float] = {}

    def read(self, device: Device, now: float, *, erring: bool) -> tuple[Value, ...]:
        """Return the samples about links.

        Args:
            device: the GPU.
            now: monotonic time in seconds.
            erring: whether the links together have counted errors, so that reading each is
                worthwhile.

        Raises:
            NvmlError: the GPU has no links, or does not report them. It is not asked again before
                the next look is due, and until then there are no samples.
        """
        if now >= self._due:
            self._due = now + PERIOD_SECONDS
            self._values = ()  # of a failed look nothing is left, until the next one
            self._values = tuple(self._look(device, erring=erring))
        return self._values

    def _look(self, device: Device, *, erring: bool) -> Iterator[Value]:
        states = dict(_states(device))
        up = [link for link, is_up in states.items() if is_up]
        if not states:
            raise NvmlError(NOT_SUPPORTED, "nvlink_active")
        self._seen_up |= set(up)
        if self._seen_up or self._all_connected:
            yield metrics.GPU_NVLINKS_UP, (), len(up)
        if not self._seen_up:
            return  # links that are not connected, or not yet trained, are not down
        connected = self._seen_up if self._bridged else states.keys()
        self._seen_down |= connected - set(up)
        for link in sorted(self._seen_down):
            yield metrics.GPU_NVLINK_LINK_UP, (str(link),), int(states.get(link, False))
        if erring:
            yield from _errors(device, states)
        yield from self._shares(device, up)

    def _shares(self, device: Device, up: Sequence[int]) -> Iterator[Value]:
        before, self._bytes = self._bytes, _traffic(device, up)
        moved = {
            link: total - before[link]
            for link, total in self._bytes.items()
            if link in before and total >= before[link]
        }
        median = statistics.median(moved.values()) if moved else 0.0
        if median < QUIET_BYTES:
            return
        shares = {link: count / median for link, count in moved.items()}
        self._seen_deviating |= {link for link, part in shares.items() if part < DEVIATING_SHARE}
        for link in sorted(self._seen_deviating & shares.keys()):
            yield metrics.GPU_NVLINK_LINK_SHARE, (str(link),), shares[link]


def _states(device: Device) -> Iterator[tuple[int, bool]]:
    """Yield the existing links, and whether each is up."""
    for link in range(MAX_NVLINKS):
        is_up = _state(device, link)
        if is_up is None:
            return  # links are numbered without gaps
        yield link, is_up


def _state(device: Device, link: int) -> bool | None:
    try:
        return device.nvlink_active(link)
    except NvmlError as error:
        if error.code not in UNSUPPORTED_CODES:
            raise
        return None


def _errors(device: Device, links: Mapping[int, bool]) -> Iterator[Value]:
    for link in links:
        for counter, name in NVLINK_COUNTERS.items():
            count = _count(device, link, counter)
            if count:
                yield metrics.GPU_NVLINK_LINK_ERRORS, (str(link), name), count


def _count(device: Device, link: int, counter: int) -> int:
    """Return an error counter; 0 if the link lacks it."""
    try:
        return device.nvlink_errors(link, counter)
    except NvmlError as error:
        if error.code not in UNSUPPORTED_CODES:
            raise
        return 0


def _traffic(device: Device, links: Sequence[int]) -> Mapping[int, float]:
    """Return bytes sent and received by link, for links that report them."""
    if not links:
        return {}
    for sent, received, unit in BYTE_FIELDS:
        answers = device.fields([(field, link) for link in links for field in (sent, received)])
        pairs = zip(links, answers[::2], answers[1::2], strict=True)
        found = {
            link: (one.value + other.value) * unit
            for link, one, other in pairs
            if one.code == SUCCESS and other.code == SUCCESS
        }
        if found:
            return found
    return {}
