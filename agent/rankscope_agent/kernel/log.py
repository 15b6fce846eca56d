"""Reads kernel logs of any size and counts what they state, in bounded memory."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rankscope_agent.kernel.events import KernelEvent, Kind
from rankscope_agent.kernel.lines import MAX_LINE, is_kernel, uptime_seconds
from rankscope_agent.kernel.matcher import RULES, match
from rankscope_agent.kernel.scanner import grouping, lines_with, needles_in, parts_of
from rankscope_agent.kernel.vocabulary import stronger
from rankscope_agent.xid import RECOVERY_CHANGED

MAX_SEEN = 20_000
"""Different events kept: a node of eight GPUs with a thousand processes each, for two codes."""

MAX_KNOWN_LINES = 50_000
"""Messages remembered with what they state: some 15 MB."""

TRACE_LINES = 64
"""Lines of a stack trace that are looked at: the kernel prints at most that many frames."""

TRACED: frozenset[Kind] = frozenset(
    {"hung_task", "soft_lockup", "hard_lockup", "cpu_stall", "kernel_fault"}
)

# __schedule+0x291/0x8a0 or, of a module, amdgpu_cs_ioctl+0x60/0x60 [amdgpu]
_FRAME_MODULE = re.compile(rb"\+0x[0-9a-f]+/0x[0-9a-f]+ \[(\w{1,56})\]")
# The first line of every boot: Linux version 6.1.0-18-amd64 (debian-kernel@...) ...
_BOOT = b"Linux version "
_BOOT_LINE = re.compile(rb"^[^\n]{0,200}?\bLinux version \d", re.MULTILINE)

BOOT_SECONDS = 1e9
"""What is added to seconds since boot for each boot that a log has seen: longer than any lasts."""

_KERNEL_FIELDS = {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}

Key = tuple[Kind, int | None, str | None, int | None, str, str, str, bool]


@dataclass(slots=True, eq=False)
class Seen:
    """An event, and how often and when it was seen; each is itself alone.

    Args:
        event: the first occurrence, with the strongest action of all; of Xid 154 the last one's.
        count: events, as their lines count them.
        order: position among the log's different events.
        first_line: the line it was first seen in, cut to `MAX_LINE`.
        last_line: the line it was last seen in.
        modules: kernel modules in the stack traces behind it.
        boots: in which of the log's boots it was first and last seen.
        times: when it was first and last seen, if known otherwise than by the lines.
    """

    event: KernelEvent
    order: int
    first_line: bytes
    last_line: bytes
    count: int = 0
    modules: set[str] = field(default_factory=set)
    boots: tuple[int, int] = (0, 0)
    times: tuple[float, float] | None = None

    @property
    def first_seconds(self) -> float | None:
        """When it was first seen, in seconds since the log's first boot began or so, if it says.

        Of a later boot `BOOT_SECONDS` is added for each one before it.
        """
        if self.times is not None:
            return self.times[0]
        return _seconds(self.first_line, self.boots[0])

    @property
    def last_seconds(self) -> float | None:
        """When it was last seen, likewise."""
        if self.times is not None:
            return self.times[1]
        return _seconds(self.last_line, self.boots[1])

    def again(self, line: bytes, boot: int) -> None:
        """Note a later line."""
        self.last_line = line
        self.boots = (self.boots[0], boot)


class KernelLog:
    """Takes a log piece by piece.

    Args:
        max_seen: different events kept.
    """

    def __init__(self, max_seen: int = MAX_SEEN) -> None:
        self._max_seen = max_seen
        self.beyond_limits = 0
        """Events that were not kept, as `max_seen` others are there already."""
        self._seen: dict[Key, Seen] = {}
        self._known: dict[bytes, Seen | None] = {}
        self._trace: Seen | None = None
        self._trace_left = 0
        self._named_gpu: str | None = None
        self._boot = 0

    @property
    def seen(self) -> tuple[Seen, ...]:
        """Return the events so far, in the order of their first occurrence."""
        return tuple(self._seen.values())

    def feed(self, text: bytes) -> None:
        """Read whole lines."""
        begin = 0
        if _BOOT in text:
            for found in _BOOT_LINE.finditer(text):
                if not is_kernel(_prefix(found[0])):
                    continue
                self._feed(text[begin : found.start()])
                begin = found.start()
                self._boot += 1
        self._feed(text[begin:] if begin else text)

    def _feed(self, text: bytes) -> None:
        """Read lines of one boot."""
        if self._trace is not None and self._trace_left:
            self._follow_trace(self._trace, text)
        needles = needles_in(text)
        if not needles:
            return
        pattern = grouping(text)
        spans = lines_with(text, needles)
        if spans is None:
            self._read_groups(text, needles, pattern)
            return
        names = tuple(needle.decode() for needle in needles)
        for start, end in spans:
            found = pattern.match(text, start, min(end, start + MAX_LINE))
            if found is not None and self._known.get(found[1], found) is None:
                continue  # it is known to state nothing
            seen = self._count(text[start : min(end, start + MAX_LINE)], pattern, names)
            if seen is not None and seen.event.kind in TRACED:
                self._follow_trace(seen, text, end + 1)

    def _read_groups(
        self, text: bytes, needles: tuple[bytes, ...], pattern: re.Pattern[bytes]
    ) -> None:
        """Count equal messages at once; read those that are not known, one by one."""
        lines = text.split(b"\n")
        parts = parts_of(text, lines, pattern)
        last_lines = dict(zip(parts, lines, strict=True))
        new: set[bytes] = set()
        counts = Counter(parts)
        for part, count in counts.items():
            if part not in self._known:
                if any(needle in part for needle in needles):
                    new.add(part)
            else:
                self._add(self._known[part], count, last_lines[part])
        if not new:
            return
        names = tuple(needle.decode() for needle in needles)
        for number, part in enumerate(parts):
            if part not in new:
                continue
            seen = self._count(lines[number][:MAX_LINE], pattern, names)
            if seen is not None and seen.event.kind in TRACED:
                self._follow_trace(seen, b"\n".join(lines[number + 1 :][:TRACE_LINES]))
            elif part in self._known:
                new.discard(part)
                self._add(seen, counts[part] - 1, last_lines[part])

    def _add(self, seen: Seen | None, times: int, line: bytes) -> None:
        """Count further lines of a known message, the last of which is given."""
        if seen is not None and times:
            seen.count += times * seen.event.count
            seen.again(line[:MAX_LINE], self._boot)

    def _count(
        self, line: bytes, pattern: re.Pattern[bytes], names: tuple[str, ...]
    ) -> Seen | None:
        """Read a line, or know it by its message, and count it."""
        found = pattern.match(line)
        part = found[1] if found is not None else line
        seen = self._known[part] if part in self._known else self._read(line, part, names)
        if seen is not None:
            seen.count += seen.event.count
            seen.again(line, self._boot)
        return seen

    def _read(self, line: bytes, part: bytes, names: tuple[str, ...]) -> Seen | None:
        event = read(line, names)
        seen = None if event is None else self._keep(event, line)
        if event is None or not _in_context(event):
            if len(self._known) >= MAX_KNOWN_LINES:
                self._known.clear()
            self._known[part] = seen
        return seen

    def _keep(self, event: KernelEvent, line: bytes) -> Seen | None:
        if event.kind == "gpu_named":
            self._named_gpu = event.pci
            return None
        if event.kind == "gpu_fallen_off_bus" and event.pci is None:
            event, self._named_gpu = replace(event, pci=self._named_gpu), None
        key = _key(event)
        seen = self._seen.get(key)
        if seen is not None:
            seen.event = merged(seen.event, event)
        elif len(self._seen) >= self._max_seen:
            self.beyond_limits += 1
        else:
            boots = (self._boot, self._boot)
            seen = Seen(event, len(self._seen), line, line, boots=boots)
            self._seen[key] = seen
        return seen

    def _follow_trace(self, seen: Seen, text: bytes, start: int = 0) -> None:
        """Note the modules in the stack trace behind an event, over the ends of texts."""
        if self._trace is not seen or start:
            self._trace, self._trace_left = seen, TRACE_LINES
        while self._trace_left and start < len(text):
            end = text.find(b"\n", start)
            end = len(text) if end < 0 else end
            found = _FRAME_MODULE.search(text, start, min(end, start + MAX_LINE))
            if found is not None and len(seen.modules) < TRACE_LINES:
                seen.modules.add(found[1].decode())
            self._trace_left -= 1
            start = end + 1


def _seconds(line: bytes, boot: int) -> float | None:
    seconds = uptime_seconds(line.decode(errors="replace"))
    return None if seconds is None else boot * BOOT_SECONDS + seconds


def _prefix(line: bytes) -> str:
    """Return what stands before `Linux version`."""
    return line[: line.rindex(_BOOT)].decode(errors="replace")


def read(line: bytes, needles: tuple[str, ...] = tuple(RULES)) -> KernelEvent | None:
    """Return the event of one line, also of one that `journalctl -o json` wrote."""
    text = line.decode(errors="replace")
    return match(_journal_message(text) if text.startswith('{"') else text, needles)


def _in_context(event: KernelEvent) -> bool:
    """Whether a line has to be read each time: what it means depends on the lines around it."""
    recovery = event.kind == "xid" and event.code == RECOVERY_CHANGED
    return recovery or event.kind in {"gpu_named", "gpu_fallen_off_bus"}


def _journal_message(text: str) -> str:
    """Return the message of a journal entry in JSON, an empty text if a program wrote it."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(entry, dict) or not isinstance(entry.get("MESSAGE"), str):
        return ""
    known = [entry[name] == value for name, value in _KERNEL_FIELDS.items() if name in entry]
    return str(entry["MESSAGE"]) if all(known) else ""


def _line_at(text: bytes, at: int) -> bytes:
    start = text.rfind(b"\n", 0, at) + 1
    end = text.find(b"\n", at)
    return text[start : min(end if end >= 0 else len(text), start + MAX_LINE)]


def _key(event: KernelEvent) -> Key:
    if event.kind == "xid":
        return event.kind, event.code, event.pci, event.pid, "", "", "", False
    subject = (event.device, event.comm, event.cgroup or event.severity)
    return event.kind, event.code, event.pci, None, *subject, event.detail


def merged(first: KernelEvent, later: KernelEvent) -> KernelEvent:
    """Return the first of two like events with what the later one adds."""
    if first.code == RECOVERY_CHANGED and first.kind == "xid":
        return later
    return replace(
        first,
        action=stronger(first.action, later.action),
        severity=later.severity if later.severity == "fatal" else first.severity,
        previous=first.previous if first.previous is not None else later.previous,
        follow_up=first.follow_up or later.follow_up,
    )


def counted(seen: tuple[Seen, ...]) -> Iterator[Seen]:
    """Yield events without the details of those that are there themselves."""
    whole = {_subject(one.event) for one in seen if not one.event.detail}
    for one in seen:
        if not one.event.detail or _subject(one.event) not in whole:
            yield one


def _subject(event: KernelEvent) -> tuple[Kind, int | None, str | None]:
    """Return what a detail shares with its event; switches print their details out of order."""
    kind = "oom_kill" if event.kind == "oom_scope" else event.kind
    return kind, event.code, event.pci if kind == "sxid" else None
