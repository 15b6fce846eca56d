"""Groups events into incidents: one per GPU and root cause, one per device; each has one action.

An Xid rarely comes alone. It is followed by codes that name it as their cause; programs on a lost
GPU fault (13, 31, 43, 45); the driver recommends an action (154). All of these belong to the
incident of their root. Pure: from events to incidents.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rankscope_agent.contract.kernel.log import BOOT_SECONDS, Seen
from rankscope_agent.contract.kernel.vocabulary import SEVERITIES, Action, Cause, Severity, stronger
from rankscope_agent.contract.kernel.xid import (
    CLEAN_UP,
    GSP,
    RECOVERY_CHANGED,
    ROW_REMAP,
    XIDS,
    describe,
)

CHAIN_SECONDS = 300.0
"""Events within this time after a root on the same GPU belong to it: GSP timeouts repeat every 45
seconds, and a trainer's peers give up after minutes. Without times, all of a boot are near."""

ROOT_ORDER: tuple[Cause, ...] = (
    "pcie",
    "gpu_memory",
    "gpu_hardware",
    "nvlink_fabric",
    "driver",
    "app",
)
"""Order in which causes on one GPU explain others: a GPU off the bus cannot answer its driver,
whose channels then fail, followed by its programs."""

GSP_TIMEOUTS = 3
"""After this many unanswered calls the GPU's system processor is considered dead: they come 45
seconds apart, so it was silent for more than a minute."""

GPU_KINDS = frozenset(
    {
        "xid",
        "gpu_fallen_off_bus",
        "gpu_init_failure",
        "gpu_probe_failure",
        "gpu_firmware_silent",
        "gpu_firmware_crash",
        "gpu_firmware_no_start",
        "gpu_firmware_missing",
        "gpu_reset_required",
        "gpu_boot_failure",
        "nvlink_training_failure",
    }
)


FIRMWARE_KINDS = frozenset({"gpu_firmware_no_start", "gpu_firmware_crash", "gpu_firmware_missing"})
"""Events of a GPU's system processor, whose firmware counts as part of the driver."""


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong once, as far as one log shows.

    Args:
        cause: where it comes from.
        action: what to do first.
        severity: that of its worst event.
        subject: what it concerns, such as `GPU 0000:3b:00` or `disk nvme0n1`.
        summary: in one sentence.
        root: the event that explains the others.
        events: all of its events, in chronological order.
        before_boot: whether the node has booted since.
    """

    cause: Cause
    action: Action
    severity: Severity
    subject: str
    summary: str
    root: Seen
    events: tuple[Seen, ...]
    before_boot: bool = False

    @property
    def first_time(self) -> str:
        """When it began, as the log has it; empty without times."""
        texts = (one.first_time for one in sorted(self.events, key=lambda one: one.order))
        return next((text for text in texts if text), "")

    @property
    def last_time(self) -> str:
        """When it was last seen; likewise."""
        return max(self.events, key=_last).last_time


def _last(one: Seen) -> tuple[int, float]:
    seconds = one.last_seconds
    return one.boots[1], 0.0 if seconds is None else seconds


def gpu_incidents(seen: Sequence[Seen]) -> Iterator[Incident]:
    """Yield the incidents of each GPU from its events, in the order of their roots."""
    groups: dict[str | None, list[Seen]] = {}
    named = [one for one in seen if one.event.pci is not None and one.event.cause != "app"]
    for one in seen:
        groups.setdefault(_gpu_of(one, named), []).append(one)
    for pci, events in groups.items():
        left = _UnassignedEvents(events)
        for root in sorted(events, key=_rank):
            members = left.take(root)
            if members:
                yield _gpu_incident(pci, root, members)


def _gpu_of(one: Seen, named: Sequence[Seen]) -> str | None:
    """Return the GPU of an event; if the line names none, the GPU named nearest to it.

    The driver omits the address while it starts a GPU or dumps its firmware.
    """
    if one.event.pci is not None or one.event.kind == "xid" or not named:
        return one.event.pci
    near = min(named, key=lambda other: _distance(one, other))
    return near.event.pci if _distance(one, near)[0] <= CHAIN_SECONDS else None


def _distance(one: Seen, other: Seen) -> tuple[float, int]:
    """Return the distance of two events, in seconds if they have times, and in order."""
    first, last = _span(one)
    begin, end = _span(other)
    apart = 0.0 if one.shares_boot(other) else BOOT_SECONDS
    if first is not None and last is not None and begin is not None and end is not None:
        apart = max(0.0, begin - last, first - end)
    return apart, abs(one.order - other.order)


class _UnassignedEvents:
    """Events of a GPU that belong to no incident yet, indexed by time.

    A log may contain thousands of program faults on one GPU: scanning all of them for each root
    would take minutes.
    """

    def __init__(self, events: Sequence[Seen]) -> None:
        self._unassigned = set(events)
        timed: list[tuple[float, float, Seen]] = []
        self._untimed: list[Seen] = []
        for one in events:
            first, last = _span(one)
            if first is None or last is None:
                self._untimed.append(one)
            else:
                timed.append((first, last, one))
        timed.sort(key=lambda at: at[0])
        self._firsts = [first for first, _, _ in timed]
        self._lasts = list(accumulate((last for _, last, _ in timed), max))
        self._timed = timed
        self._followers: dict[int, list[Seen]] = {}
        for one in events:
            if one.event.previous is not None:
                self._followers.setdefault(one.event.previous, []).append(one)

    def take(self, root: Seen) -> tuple[Seen, ...]:
        """Return the root's incident in order; empty if the root is already in another one."""
        if root not in self._unassigned:
            return ()
        named = self._followers.get(root.event.code or 0, ())
        near = {
            one
            for one in self._near(root)
            if one in self._unassigned and one.shares_boot(root) and _belongs(one, root)
        }
        members = {root, *near, *(one for one in named if one in self._unassigned)}
        self._unassigned -= members
        return tuple(sorted(members, key=lambda one: one.order))

    def _near(self, root: Seen) -> Iterator[Seen]:
        first, last = _span(root)
        if first is not None and last is not None:
            begin = bisect_left(self._lasts, first - CHAIN_SECONDS)
            end = bisect_right(self._firsts, last + CHAIN_SECONDS)
            for one_first, one_last, one in self._timed[begin:end]:
                if one_first <= last + CHAIN_SECONDS and one_last >= first - CHAIN_SECONDS:
                    yield one
        else:  # without times all are near
            yield from (one for _, _, one in self._timed)
        yield from self._untimed


def for_fabric(cause: Cause, severity: Severity, action: Action) -> Action:
    """Return the action for a broken NVLink: linked GPUs are reset together, while idle."""
    grave = SEVERITIES.index(severity) >= SEVERITIES.index("error")
    return "drain" if cause == "nvlink_fabric" and grave and action == "reset_gpu" else action


def _rank(one: Seen) -> tuple[bool, bool, int, bool, int]:
    """Sort candidates for the root: those known to be consequences come last."""
    event = one.event
    follows = event.kind == "xid" and event.code in {*CLEAN_UP, RECOVERY_CHANGED}
    slight = SEVERITIES.index(event.severity) < SEVERITIES.index("error")
    dump = event.kind == "gpu_firmware_crash"  # is printed along with the Xid that gives the reason
    return follows, slight, ROOT_ORDER.index(event.cause), dump, one.order


def _belongs(one: Seen, root: Seen) -> bool:
    """Return True if an event near in time on the root's GPU is part of its incident."""
    event = one.event
    if one.event.kind == "xid" and event.code in CLEAN_UP:
        return True
    if event.kind == "xid" and event.code in {RECOVERY_CHANGED, *ROW_REMAP}:
        return event.code == RECOVERY_CHANGED or root.event.cause == "gpu_memory"
    if _is_grave(root):
        return True
    return event.cause == root.event.cause


def _is_grave(root: Seen) -> bool:
    """Return True if the root makes programs and the driver fail and is more than a warning."""
    grave = SEVERITIES.index(root.event.severity) >= SEVERITIES.index("error")
    return grave and root.event.cause != "app"


def _span(one: Seen) -> tuple[float | None, float | None]:
    return one.first_seconds, one.last_seconds


def _gpu_incident(pci: str | None, root: Seen, members: tuple[Seen, ...]) -> Incident:
    subject = f"GPU {pci}" if pci else "a GPU that the log does not name"
    cause, action = root.event.cause, _gpu_action(root, members)
    severity = max((m.event.severity for m in members), key=SEVERITIES.index)
    chained = root.event.previous
    if chained is not None and chained in XIDS and root.event.code in CLEAN_UP:
        known = describe(chained)
        cause = known.cause
        severity = max(severity, known.severity, key=SEVERITIES.index)
        action = for_fabric(cause, severity, stronger(action, known.action))
    elif root.event.kind == "gpu_init_failure" and _stopped_by_firmware(members):
        cause = "driver"
        action = "investigate" if _lacks_firmware(members) else action
    summary = (
        f"{subject}: {gpu_text(root, _on_links(root, members))}{_followed(root, members)}"
        f"{_advice(root, members, action)}"
    )
    return Incident(cause, action, severity, subject, summary, root, members)


def _stopped_by_firmware(members: Sequence[Seen]) -> bool:
    """Return True if a GPU failed to initialise because its system processor did not start.

    If its own firmware failed to boot before that, the hardware is broken.
    """
    kinds = {one.event.kind for one in members}
    return bool(kinds & FIRMWARE_KINDS) and "gpu_boot_failure" not in kinds


def _lacks_firmware(members: Sequence[Seen]) -> bool:
    return any(one.event.kind == "gpu_firmware_missing" for one in members)


def _gpu_action(root: Seen, members: Sequence[Seen]) -> Action:
    """Return the driver's own advice (154) if given, else what the root's kind of fault needs.

    A GPU whose driver could not recover from a PCIe error needs a reset to work again.
    """
    action, advised = root.event.action, None
    if root.event.kind.startswith("pcie_") and action == "investigate":
        action = "reset_gpu"
    for one in members:
        if one.event.kind == "xid" and one.event.code == RECOVERY_CHANGED:
            advised = one.event.action
        elif one.event.cause == root.event.cause and one.event.action != "contact_vendor":
            action = stronger(action, one.event.action)
    if advised is not None and advised != "none":
        return advised
    if _dead_firmware(members):
        action = stronger(action, "reboot_node")
    return for_fabric(root.event.cause, root.event.severity, action)


def _dead_firmware(members: Iterable[Seen]) -> bool:
    """Return True if the GPU's system processor stays silent: a reset would need it."""
    silent = (one.count for one in members if one.event.kind == "xid" and one.event.code in GSP)
    return sum(silent) >= GSP_TIMEOUTS


def _on_links(root: Seen, members: Sequence[Seen]) -> str:
    """Name the NVLinks that the lines of the root's code name, those of all its processes."""
    same = (one.event for one in members if one.event.code == root.event.code)
    links = sorted({link for event in same for link in event.links})
    plural = "s" if len(links) > 1 else ""
    return f" on link{plural} {', '.join(map(str, links))}" if links else ""


def gpu_text(root: Seen, where: str = "") -> str:
    """Describe an event on a GPU in words, and where on the GPU it was if that is known."""
    event = root.event
    if event.kind == "xid" and event.code is not None:
        who = f" in {event.comm}" if event.comm and event.cause == "app" else ""
        return f"Xid {event.code}{where}, {describe(event.code).text}{who}"
    return PHRASES.get(event.kind, event.kind.replace("_", " "))


def _followed(root: Seen, members: Sequence[Seen]) -> str:
    total = sum(m.count for m in members)
    others = sorted(
        {
            f"Xid {m.event.code}" if m.event.kind == "xid" else PHRASES[m.event.kind]
            for m in members
            if m is not root and (m.event.kind, m.event.code) != (root.event.kind, root.event.code)
        }
    )
    times = f" ({total} lines)" if total > 1 else ""
    return f"{times}, with {', '.join(others)}" if others else times


def _advice(root: Seen, members: Sequence[Seen], action: Action) -> str:
    if root.event.kind == "xid" and root.event.code in ROW_REMAP and action == "reset_gpu":
        return "; reset the GPU at the job's next boundary, not before"
    follow_ups = (one.event.follow_up for one in (root, *members))
    follow_up = next((text for text in follow_ups if text), "")
    return f"; {follow_up}" if follow_up else ""


PHRASES = {
    "gpu_fallen_off_bus": "the GPU has fallen off the bus",
    "gpu_init_failure": "the driver could not initialise the GPU",
    "gpu_firmware_silent": "the GPU's system processor gives no sign of life",
    "gpu_reset_required": "the driver wants a reset of the GPU",
    "gpu_boot_failure": "the GPU's firmware did not boot",
    "gpu_probe_failure": "the driver could not take the GPU when it was loaded",
    "gpu_firmware_crash": "the GPU's system processor (GSP) crashed and left a dump",
    "gpu_firmware_no_start": "the GPU's system processor (GSP) could not be started",
    "gpu_firmware_missing": "the firmware of the GPU's system processor (GSP) is not installed",
    "nvlink_training_failure": "NVLinks could not be discovered",
    "pcie_error": "PCIe errors",
    "slow_pcie_link": "a PCIe link below the GPU's own speed or width",
    "iommu_fault": "the IOMMU refused the GPU's access to memory",
    "device_inaccessible": "it no longer answers on the PCIe bus",
    "pcie_unrecovered": "the driver could not recover from PCIe errors",
    "sxid": "NVSwitch errors",
}


def on_gpus(seen: Iterable[Seen]) -> tuple[tuple[Seen, ...], tuple[Seen, ...]]:
    """Separate events on GPUs from all others; PCIe errors of a GPU count as its own."""
    events = tuple(seen)
    gpus = {one.event.pci for one in events if one.event.kind in GPU_KINDS or _names_driver(one)}
    gpus.discard(None)
    own = tuple(one for one in events if one.event.kind in GPU_KINDS or one.event.pci in gpus)
    taken = set(own)
    return own, tuple(one for one in events if one not in taken)


def _names_driver(one: Seen) -> bool:
    return one.event.kind.startswith("pcie_") and one.event.text.startswith("nvidia ")
