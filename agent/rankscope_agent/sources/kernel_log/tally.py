"""Counts kernel log events under bounded names: pure, and saved across restarts as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from rankscope_agent.contract.kernel.events import KernelEvent, Kind
from rankscope_agent.contract.kernel.firmware_reports import begins_report, of_report
from rankscope_agent.contract.kernel.sxid import KNOWN
from rankscope_agent.contract.kernel.xid import XIDS

VERSION = 3
BEFORE_PODS = 2
"""A version that did not record when a pod was hit, so that it is unknown which one to forget."""

MAX_SUBJECTS = 64
"""Devices, disks or pods counted by name: a node has fewer; further ones share one name."""

MAX_VICTIMS = 256
"""Processes whose memory cgroup is remembered until the line that reports their death."""

MAX_PODS = 32
"""Pods whose killed or crashed processes are counted: four jobs on each of eight GPUs. Pods come
and go, so a further one replaces the one that was hit longest ago."""

POD_EVENTS: frozenset[Kind] = frozenset(("oom_kill", "user_fault"))
"""Events that end a process of one pod and say nothing about others on the node."""

OTHER = "other"
UNKNOWN = "unknown"

# kubelet's cgroups: /kubepods/burstable/pod<uid>/..., or kubepods-burstable-pod<uid_>.slice.
_POD = re.compile(
    r"(?<![0-9A-Za-z_])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[./]|$)"
)
_DISK = re.compile(
    r"nvme\d{1,4}(?=n\d|$)|(?:[svh]|xv)d[a-z]{1,3}|mmcblk\d{1,3}|dm-\d{1,4}|md\d{1,4}|ata\d{1,3}"
)

_UNCOUNTED = {"xid", "sxid", "gpu_named", "oom_scope", "oom_search"}
_HARMLESS = {"link_up", "port_state", "nic_command_refused", "network_storage_back"}
COUNTED: tuple[Kind, ...] = tuple(
    kind for kind in get_args(Kind) if kind not in _UNCOUNTED | _HARMLESS
)
"""Kinds that are counted as such; Xids and SXids are counted by code."""

_FIELDS = ("xids", "sxids", "gpus", "pcie", "adapters", "disks", "ooms", "kinds", "reboots")
_TIMES = ("xid_times", "sxid_times", "pod_times", "kind_times", "reboot_times")

Name = tuple[str, ...]


class StateError(ValueError):
    """The text is not a state of this version."""


@dataclass(slots=True)
class Tally:
    """The counts so far; each key consists of bounded names.

    Args:
        xids: by PCI address, code, severity and action.
        sxids: by PCI address, code and severity.
        gpus: other events on GPUs, by PCI address and kind.
        pcie: AER errors by PCI address and severity.
        adapters: unanswered commands by PCI address of the adapter.
        disks: errors by disk.
        ooms: killed processes by scope and pod.
        pod_times: Unix time of the last event of `POD_EVENTS`, by kind, scope and pod.
        kinds: events by kind.
        reboots: boots by how the previous one ended.
        xid_times: Unix time of the last one, by the same names; likewise `sxid_times`.
        kind_times: Unix time of the last event, by kind.
        reboot_times: Unix time of the last boot, by how the previous one ended.
        lost: records that could not be read.
    """

    xids: Counter[Name] = field(default_factory=Counter)
    sxids: Counter[Name] = field(default_factory=Counter)
    gpus: Counter[Name] = field(default_factory=Counter)
    pcie: Counter[Name] = field(default_factory=Counter)
    adapters: Counter[Name] = field(default_factory=Counter)
    disks: Counter[Name] = field(default_factory=Counter)
    ooms: Counter[Name] = field(default_factory=Counter)
    kinds: Counter[Name] = field(default_factory=Counter)
    reboots: Counter[Name] = field(default_factory=Counter)
    xid_times: dict[Name, float] = field(default_factory=dict)
    sxid_times: dict[Name, float] = field(default_factory=dict)
    pod_times: dict[Name, float] = field(default_factory=dict)
    kind_times: dict[Name, float] = field(default_factory=dict)
    reboot_times: dict[Name, float] = field(default_factory=dict)
    lost: int = 0
    _victims: dict[int, str] = field(default_factory=dict)
    _limit: str = ""
    _named: str | None = None
    _report: KernelEvent | None = None

    def add(self, event: KernelEvent, unix_seconds: float, pod_uid: str = "") -> None:
        """Count an event.

        Args:
            event: the event stated by a line.
            unix_seconds: its time.
            pod_uid: of the process that it names, if known from elsewhere; empty if not.
        """
        if event.kind == "gpu_named":
            self._named = event.pci
            return
        if event.kind == "oom_scope":
            self._remember_victim(event)
            return
        if begins_report(event):
            self._report = event
        event = of_report(event, self._report)
        if event.detail or event.cause == "benign":
            return
        if event.kind in {"xid", "sxid"}:
            self._add_code(event, unix_seconds)
            return
        if event.kind in POD_EVENTS:
            self._add_pod_event(event, unix_seconds, pod_uid)
        else:
            self._add_subject(event)
        self.kinds[event.kind,] += event.count
        self.kind_times[event.kind,] = unix_seconds

    def _add_code(self, event: KernelEvent, unix_seconds: float) -> None:
        own = event.kind == "xid"
        counts, times = (self.xids, self.xid_times) if own else (self.sxids, self.sxid_times)
        code = str(event.code) if event.code in (XIDS if own else KNOWN) else OTHER
        pci = _bounded(event.pci or UNKNOWN, (name[0] for name in counts))
        name = (pci, code, event.severity, *((event.action,) if own else ()))
        counts[name] += 1
        times[name] = unix_seconds

    def _add_subject(self, event: KernelEvent) -> None:
        if event.kind == "gpu_fallen_off_bus" and event.pci is None:
            event, self._named = replace(event, pci=self._named), None
        if event.kind in {"gpu_fallen_off_bus", "gpu_init_failure"}:
            pci = _bounded(event.pci or UNKNOWN, (name[0] for name in self.gpus))
            self.gpus[pci, event.kind] += 1
        elif event.kind == "pcie_error":
            pci = _bounded(event.pci or UNKNOWN, (name[0] for name in self.pcie))
            self.pcie[pci, event.severity] += 1
        elif event.kind == "nic_command_timeout":
            self.adapters[_bounded(event.device, (name[0] for name in self.adapters)),] += 1
        elif event.cause == "storage" and (disk := _DISK.match(event.device)):
            self.disks[_bounded(disk[0], (name[0] for name in self.disks)),] += 1

    def _remember_victim(self, event: KernelEvent) -> None:
        # The limit's own group first: below it, a container may have named groups as it likes.
        pod = pod_of_cgroup(event.cgroup) or pod_of_cgroup(event.victim)
        if event.pid is None:  # a line about the groups alone, before the one that names a process
            self._limit = pod
            return
        if len(self._victims) >= MAX_VICTIMS:
            self._victims.clear()
        self._victims[event.pid] = pod

    def _add_pod_event(self, event: KernelEvent, unix_seconds: float, pod_uid: str) -> None:
        scope = ""
        if event.kind == "oom_kill":
            scope = "cgroup" if event.cause == "app" else "node"
            limit, self._limit = self._limit if scope == "cgroup" else "", ""
            pod_uid = self._victims.pop(event.pid or 0, "") or limit or pod_uid
        self._evict_oldest(pod_uid)
        self.pod_times[event.kind, scope, pod_uid] = unix_seconds
        if event.kind == "oom_kill":
            self.ooms[scope, pod_uid] += 1

    def _evict_oldest(self, pod_uid: str) -> None:
        """Forget the pod that was hit longest ago if there are too many."""
        last: dict[str, float] = {}
        for (_, _, pod), seconds in self.pod_times.items():
            last[pod] = max(seconds, last.get(pod, seconds))
        if pod_uid in last or len(last) < MAX_PODS:
            return
        gone = min(last, key=lambda pod: last[pod])
        self.pod_times = {name: at for name, at in self.pod_times.items() if name[2] != gone}
        self.ooms = Counter({name: n for name, n in self.ooms.items() if name[1] != gone})

    def to_json(self) -> dict[str, Any]:
        """Return the counts as values for JSON."""
        maps = {name: [[*key, n] for key, n in getattr(self, name).items()] for name in _FIELDS}
        times = {name: [[*key, at] for key, at in getattr(self, name).items()] for name in _TIMES}
        return {"version": VERSION, "lost": self.lost, **maps, **times}


def pod_of_cgroup(path: str) -> str:
    """Return the UID of the pod whose group is on a path; empty if there is none.

    The outermost one counts. The UID of a static pod consists of the 32 hex digits of its
    configuration's hash.
    """
    found = _POD.search(path)
    return found[1].replace("_", "-") if found else ""


def from_json(state: Mapping[str, Any]) -> Tally:
    """Return the counts written by `Tally.to_json`.

    Raises:
        StateError: they were not written by it.
    """
    if state.get("version") == BEFORE_PODS:
        state = {**state, "version": VERSION, "ooms": [], "pod_times": []}
    if state.get("version") != VERSION:
        raise StateError(f"version {state.get('version')!r}, expected {VERSION}")
    tally = Tally()
    try:
        tally.lost = int(state["lost"])
        for name in _FIELDS:
            getattr(tally, name).update({_name(key): int(n) for *key, n in state[name]})
        for name in _TIMES:
            getattr(tally, name).update({_name(key): float(at) for *key, at in state[name]})
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"is damaged: {error!r}") from error
    return tally


def _name(parts: Iterable[object]) -> Name:
    return tuple(str(part) for part in parts)


def _bounded(name: str, known: Iterable[str]) -> str:
    names = set(known)
    return name if name in names or len(names) < MAX_SUBJECTS else OTHER
