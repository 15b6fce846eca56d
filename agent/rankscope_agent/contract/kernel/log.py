"""Reads kernel logs of any size and counts their events in bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.kernel.events import KernelEvent, Kind
from rankscope_agent.contract.kernel.lines import MAX_LINE, MAX_PREFIX, is_kernel, uptime_seconds
from rankscope_agent.contract.kernel.matcher import match, rules_for, shape
from rankscope_agent.contract.kernel.rule import Rule
from rankscope_agent.contract.kernel.scanner import BOOT, DENSE, Screen, grouping, may_begin_boot
from rankscope_agent.contract.kernel.vocabulary import stronger
from rankscope_agent.contract.kernel.xid import RECOVERY_CHANGED

MAX_SEEN = 20_000
"""Different events kept: a node of eight GPUs with a thousand processes each, for two codes."""

MAX_KNOWN_LINES = 50_000
"""Messages remembered with what they state: some 15 MB."""

TRACE_LINES = 64
"""Lines of a stack trace that are looked at: the kernel prints at most that many frames."""

_NAMED_BEFORE: frozenset[Kind] = frozenset({"gpu_fallen_off_bus", "gpu_probe_failure"})
"""What a line says of a GPU that an earlier one named."""

TRACED: frozenset[Kind] = frozenset(
    {"hung_task", "soft_lockup", "hard_lockup", "cpu_stall", "kernel_fault"}
)

# __schedule+0x291/0x8a0 or, of a module, amdgpu_cs_ioctl+0x60/0x60 [amdgpu]
_FRAME_MODULE = re.compile(rb"\+0x[0-9a-f]+/0x[0-9a-f]+ \[(\w{1,56})\]")
_FRAME = b"+0x"
_BOOT_LINE = re.compile(rb"([^\n]{0,200}?)\b" + BOOT + rb"\d")

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
        if self.boots[1] != boot:
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
        self._screen = Screen()
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
        shapes = shape(text).split(b"\n")
        telling = self._screen.telling(shapes)
        if not telling and not self._trace_left:
            return
        lines = text.split(b"\n")
        if not lines[-1]:
            lines.pop()
        self._follow_trace(lines, 0)
        numbers = list(compress(range(len(lines)), map(telling.__contains__, shapes)))
        page = _Page(text, lines, shapes, telling, numbers)
        boots = may_begin_boot(telling)
        if len(numbers) > DENSE * len(lines) and not boots:
            self._read_groups(page)
        else:
            self._read_lines(page, boots)

    def _read_lines(self, page: _Page, boots: bool) -> None:
        """Read line by line; a boot may begin among them."""
        pattern = grouping(page.telling)
        for number in page.numbers:
            line = page.lines[number][:MAX_LINE]
            if boots and _begins_boot(line):
                self._boot += 1
                continue
            found = pattern.match(line)
            part = found[1] if found is not None else line
            if self._known.get(part, found) is None:
                continue  # it is known to state nothing
            seen = self._count(line, part, page.rules(number))
            if seen is not None and seen.event.kind in TRACED:
                self._begin_trace(seen, page.lines, number)

    def _read_groups(self, page: _Page) -> None:
        """Count equal messages at once; read those that are not known, one by one."""
        parts = grouping(page.telling).findall(page.text)
        lines = page.lines
        if len(page.numbers) < len(lines):
            parts = [parts[number] for number in page.numbers]
            lines = [lines[number] for number in page.numbers]
        last_lines = dict(zip(parts, lines, strict=False))  # an empty part follows the last line
        counts = Counter(parts)
        new: set[bytes] = set()
        for part, line in last_lines.items():
            if part in self._known:
                self._add(self._known[part], counts[part], line)
            else:
                new.add(part)
        for number, part, line in zip(page.numbers, parts, lines, strict=False):
            if not new:
                return
            if part not in new:
                continue
            seen = self._count(line[:MAX_LINE], part, page.rules(number))
            if seen is not None and seen.event.kind in TRACED:
                self._begin_trace(seen, page.lines, number)
            elif part in self._known:
                new.discard(part)
                self._add(seen, counts[part] - 1, last_lines[part])

    def _add(self, seen: Seen | None, times: int, line: bytes) -> None:
        """Count further lines of a known message, the last of which is given."""
        if seen is not None and times:
            seen.count += times * seen.event.count
            seen.again(line[:MAX_LINE], self._boot)

    def _count(self, line: bytes, part: bytes, rules: tuple[Rule, ...]) -> Seen | None:
        """Read a line, or know it by the part that tells its event, and count it."""
        seen = self._known[part] if part in self._known else self._read(line, part, rules)
        if seen is not None:
            seen.count += seen.event.count
            seen.again(line, self._boot)
        return seen

    def _read(self, line: bytes, part: bytes, rules: tuple[Rule, ...]) -> Seen | None:
        event = read(line, rules)
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
        if event.kind in _NAMED_BEFORE and event.pci is None and not event.detail:
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

    def _begin_trace(self, seen: Seen, lines: list[bytes], start: int) -> None:
        """Follow the stack trace behind an event, whose own line may name the first frame."""
        self._trace, self._trace_left = seen, TRACE_LINES
        self._follow_trace(lines, start)

    def _follow_trace(self, lines: list[bytes], start: int) -> None:
        """Note the modules in what is left of a stack trace, over the ends of texts."""
        if self._trace is None or not self._trace_left:
            return
        followed = lines[start : start + self._trace_left]
        self._trace_left -= len(followed)
        text = b"\n".join(followed)
        if _FRAME not in text:
            return
        for found in _FRAME_MODULE.finditer(text):
            if len(self._trace.modules) < TRACE_LINES:
                self._trace.modules.add(found[1].decode())


@dataclass(frozen=True, slots=True)
class _Page:
    """A piece of a log.

    Args:
        text: all of it.
        lines: its lines.
        shapes: theirs.
        telling: the rules for each of the shapes whose lines may state something.
        numbers: of the lines that have such a shape.
    """

    text: bytes
    lines: list[bytes]
    shapes: list[bytes]
    telling: Mapping[bytes, tuple[Rule, ...]]
    numbers: list[int]

    def rules(self, number: int) -> tuple[Rule, ...]:
        """Return the rules for a line."""
        return self.telling[self.shapes[number]]


def _seconds(line: bytes, boot: int) -> float | None:
    seconds = uptime_seconds(line[:MAX_PREFIX].decode(errors="replace"))
    return None if seconds is None else boot * BOOT_SECONDS + seconds


def _begins_boot(line: bytes) -> bool:
    found = _BOOT_LINE.match(line)
    return found is not None and is_kernel(found[1].decode(errors="replace"))


def read(line: bytes, rules: tuple[Rule, ...] | None = None) -> KernelEvent | None:
    """Return the event of one line, also of one that `journalctl -o json` wrote.

    Args:
        line: the line.
        rules: what it may obey, if that is known.
    """
    text = line.decode(errors="replace")
    message = _journal_message(text) if text.startswith('{"') else text
    return match(message, rules_for(shape(line)) if rules is None else rules)


def _in_context(event: KernelEvent) -> bool:
    """Return True if a line must be read each time: its meaning depends on the lines around it."""
    recovery = event.kind == "xid" and event.code == RECOVERY_CHANGED
    return recovery or event.kind == "gpu_named" or event.kind in _NAMED_BEFORE


def _journal_message(text: str) -> str:
    """Return the message of a journal entry in JSON, an empty text if a program wrote it."""
    try:
        entry = untrusted_json.read(text)
    except ValueError:
        return ""
    if not isinstance(entry, dict) or not isinstance(entry.get("MESSAGE"), str):
        return ""
    known = [entry[name] == value for name, value in _KERNEL_FIELDS.items() if name in entry]
    return str(entry["MESSAGE"]) if all(known) else ""


def _key(event: KernelEvent) -> Key:
    if event.kind == "xid":
        return event.kind, event.code, event.pci, event.pid, "", "", "", False
    subject = (event.device, event.comm, event.cgroup or event.severity)
    return event.kind, event.code, event.pci, None, *subject, event.detail


def merged(first: KernelEvent, later: KernelEvent) -> KernelEvent:
    """Return the first of two like events with what the later one adds."""
    if first.code == RECOVERY_CHANGED and first.kind == "xid":
        return later
    whole = (
        stronger(first.action, later.action),
        later.severity if later.severity == "fatal" else first.severity,
        first.previous if first.previous is not None else later.previous,
        first.follow_up or later.follow_up,
    )
    if whole == (first.action, first.severity, first.previous, first.follow_up):
        return first
    action, severity, previous, follow_up = whole
    return replace(first, action=action, severity=severity, previous=previous, follow_up=follow_up)


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
