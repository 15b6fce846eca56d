"""Reads kernel logs of any size and counts their events in bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.kernel.events import KernelEvent, Kind
from rankscope_agent.contract.kernel.firmware_reports import begins_report, of_report
from rankscope_agent.contract.kernel.line_times import seconds_of, text_of
from rankscope_agent.contract.kernel.lines import MAX_LINE, is_kernel
from rankscope_agent.contract.kernel.matcher import match, rules_for, shape
from rankscope_agent.contract.kernel.rule import Rule
from rankscope_agent.contract.kernel.scanner import (
    BOOT,
    DENSE,
    LineFilter,
    grouping,
    may_begin_boot,
)
from rankscope_agent.contract.kernel.vocabulary import SEVERITIES, stronger
from rankscope_agent.contract.kernel.xid import RECOVERY_CHANGED

MAX_SEEN = 20_000
"""Distinct events kept: a node of eight GPUs with a thousand processes each, for two codes."""

MAX_KNOWN_LINES = 50_000
"""Messages remembered along with their meaning: some 15 MB."""

TRACE_LINES = 64
"""Lines of a stack trace that are examined: the kernel prints at most this many frames."""

_NAMED_BEFORE: frozenset[Kind] = frozenset({"gpu_fallen_off_bus", "gpu_probe_failure"})
"""Kinds of lines that concern the GPU named by an earlier line."""

TRACED: frozenset[Kind] = frozenset(
    {"hung_task", "soft_lockup", "hard_lockup", "cpu_stall", "kernel_fault"}
)

# __schedule+0x291/0x8a0, or amdgpu_cs_ioctl+0x60/0x60 [amdgpu] in a module
_FRAME_MODULE = re.compile(rb"\+0x[0-9a-f]+/0x[0-9a-f]+ \[(\w{1,56})\]")
_FRAME = b"+0x"
_BOOT_LINE = re.compile(rb"([^\n]{0,200}?)\b" + BOOT + rb"\d")

BOOT_SECONDS = 1e9
"""Added to the time of a line for each boot before it in the log: longer than any boot lasts."""

_KERNEL_FIELDS = {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}

Key = tuple[Kind, int | None, str | None, int | None, str, str, str, bool]


@dataclass(slots=True, eq=False)
class Seen:
    """An event with its number and times of occurrence; compared by identity.

    Args:
        event: the first occurrence, with the strongest action of all; for Xid 154 the last one's.
        count: number of events, as stated by their lines.
        order: position among the log's distinct events.
        first_line: the line of its first occurrence, cut to `MAX_LINE`.
        last_line: the line of its last occurrence.
        modules: kernel modules in the stack traces after it.
        boots: the boots, by number, in which it first and last occurred.
        times: when it first and last occurred, if known from elsewhere than the lines.
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
        """Seconds by the log's clock of the first occurrence, if printed: since boot, or a date's.

        For later boots `BOOT_SECONDS` is added for each earlier one.
        """
        if self.times is not None:
            return self.times[0]
        return _seconds(self.first_line, self.boots[0])

    @property
    def last_seconds(self) -> float | None:
        """The same for the last occurrence."""
        if self.times is not None:
            return self.times[1]
        return _seconds(self.last_line, self.boots[1])

    @property
    def first_time(self) -> str:
        """The time of the first occurrence as the log has it, empty if it has none."""
        return text_of(self.first_line)

    @property
    def last_time(self) -> str:
        """The same for the last occurrence."""
        return text_of(self.last_line)

    def shares_boot(self, other: Seen) -> bool:
        """Return True if two events may have occurred in the same boot."""
        return self.boots[0] <= other.boots[1] and other.boots[0] <= self.boots[1]

    def again(self, line: bytes, boot: int) -> None:
        """Record a further occurrence."""
        self.last_line = line
        if self.boots[1] != boot:
            self.boots = (self.boots[0], boot)


class KernelLog:
    """Reads a log piece by piece.

    Args:
        max_seen: distinct events kept.
    """

    def __init__(self, max_seen: int = MAX_SEEN) -> None:
        self._max_seen = max_seen
        self.beyond_limits = 0
        """Number of events that were not kept because there were `max_seen` others already."""
        self._seen: dict[Key, Seen] = {}
        self._line_filter = LineFilter()
        self._known: dict[bytes, Seen | None] = {}
        self._trace: Seen | None = None
        self._trace_left = 0
        self._named_gpu: str | None = None
        self._report: KernelEvent | None = None
        self._boot = 0

    @property
    def seen(self) -> tuple[Seen, ...]:
        """Return the events so far, in the order of their first occurrence."""
        return tuple(self._seen.values())

    @property
    def boot(self) -> int:
        """Return the number of the boot that the last line is of; boots before it have begun."""
        return self._boot

    def feed(self, text: bytes) -> None:
        """Read complete lines."""
        shapes = shape(text).split(b"\n")
        relevant = self._line_filter.relevant(shapes)
        if not relevant and not self._trace_left:
            return
        lines = text.split(b"\n")
        if not lines[-1]:
            lines.pop()
        self._follow_trace(lines, 0)
        numbers = list(compress(range(len(lines)), map(relevant.__contains__, shapes)))
        page = _Page(text, lines, shapes, relevant, numbers)
        boots = may_begin_boot(relevant)
        if len(numbers) > DENSE * len(lines) and not boots:
            self._read_groups(page)
        else:
            self._read_lines(page, boots)

    def _read_lines(self, page: _Page, boots: bool) -> None:
        """Read line by line; a new boot may begin among the lines."""
        pattern = grouping(page.relevant)
        for number in page.numbers:
            line = page.lines[number][:MAX_LINE]
            if boots and _begins_boot(line):
                self._boot += 1
                continue
            found = pattern.match(line)
            part = found[1] if found is not None else line
            if self._known.get(part, found) is None:
                continue  # known to state nothing
            seen = self._count(line, part, page.rules(number))
            if seen is not None and seen.event.kind in TRACED:
                self._begin_trace(seen, page.lines, number)

    def _read_groups(self, page: _Page) -> None:
        """Count equal messages at once; read unknown ones one by one."""
        parts = grouping(page.relevant).findall(page.text)
        lines = page.lines
        if len(page.numbers) < len(lines):
            parts = [parts[number] for number in page.numbers]
            lines = [lines[number] for number in page.numbers]
        last_lines = dict(zip(parts, lines, strict=False))  # the last part is empty
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
        """Count the event of a line, which is read unless its identifying part is known."""
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
        if begins_report(event):
            self._report = event
        event = of_report(event, self._report)
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
        """Follow the stack trace after an event, whose own line may name the first frame."""
        self._trace, self._trace_left = seen, TRACE_LINES
        self._follow_trace(lines, start)

    def _follow_trace(self, lines: list[bytes], start: int) -> None:
        """Collect the modules in the remaining stack trace, which may continue in the next text."""
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
        shapes: the shape of each line.
        relevant: the rules for the shapes whose lines may state something.
        numbers: of the lines that have such a shape.
    """

    text: bytes
    lines: list[bytes]
    shapes: list[bytes]
    relevant: Mapping[bytes, tuple[Rule, ...]]
    numbers: list[int]

    def rules(self, number: int) -> tuple[Rule, ...]:
        """Return the rules for a line."""
        return self.relevant[self.shapes[number]]


def _seconds(line: bytes, boot: int) -> float | None:
    seconds = seconds_of(line)
    return None if seconds is None else boot * BOOT_SECONDS + seconds


def _begins_boot(line: bytes) -> bool:
    if line.startswith(b'{"'):
        return _journal_message(line.decode(errors="replace")).startswith(BOOT.decode())
    found = _BOOT_LINE.match(line)
    return found is not None and is_kernel(found[1].decode(errors="replace"))


def read(line: bytes, rules: tuple[Rule, ...] | None = None) -> KernelEvent | None:
    """Return the event of one line, which may be one that `journalctl -o json` wrote.

    Args:
        line: the line.
        rules: the candidate rules, if known.
    """
    text = line.decode(errors="replace")
    message = _journal_message(text) if text.startswith('{"') else text
    return match(message, rules_for(shape(line)) if rules is None else rules)


def _in_context(event: KernelEvent) -> bool:
    """Return True if a line must be read each time because its meaning depends on nearby lines."""
    recovery = event.kind == "xid" and event.code == RECOVERY_CHANGED
    named = event.kind == "gpu_named" or event.kind in _NAMED_BEFORE
    return recovery or named or event.reported or begins_report(event)


def _journal_message(text: str) -> str:
    """Return the message of a JSON journal entry; empty if a program wrote it."""
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
    """Return the first of two equal events, with what the later one adds, at its worst."""
    if first.code == RECOVERY_CHANGED and first.kind == "xid":
        return later
    graver = SEVERITIES.index(later.severity) > SEVERITIES.index(first.severity)
    worse, other = (later, first) if graver else (first, later)
    whole = (
        stronger(first.action, later.action),
        worse.severity,
        first.previous if first.previous is not None else later.previous,
        worse.follow_up or other.follow_up,
        first.links | later.links,
    )
    if whole == (first.action, first.severity, first.previous, first.follow_up, first.links):
        return first
    action, severity, previous, follow_up, links = whole
    return replace(
        first,
        action=action,
        severity=severity,
        previous=previous,
        follow_up=follow_up,
        links=links,
    )


def counted(seen: tuple[Seen, ...]) -> Iterator[Seen]:
    """Yield events, leaving out details whose event is present itself."""
    whole = {_subject(one.event) for one in seen if not one.event.detail}
    reported = [one.event for one in seen if one.event.reported]
    if reported:
        whole.add(("machine_check", None, None))  # it is known what the report is about
    named = any(event.pci for event in reported)
    for one in seen:
        nameless = named and one.event.reported and one.event.pci is None
        if not one.event.detail or not (nameless or _subject(one.event) in whole):
            yield one


def _subject(event: KernelEvent) -> tuple[Kind, int | None, str | None]:
    """Return what a detail and its event share; switches print their details out of order."""
    kind = "oom_kill" if event.kind == "oom_scope" else event.kind
    return kind, event.code, event.pci if kind == "sxid" else None
