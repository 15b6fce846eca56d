"""The time that a kernel log prints with a line: seconds since boot, a date, or both."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from rankscope_agent.contract.kernel.lines import MAX_PREFIX, uptime_seconds
from rankscope_agent.contract.log_text.prefixes import MAX_UNIX_SECONDS, unix_seconds

NO_YEAR = 2000
"""Stands for the year that syslog omits: a leap year. The turn of a year is not recognised."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_ISO = (
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"(?:Z|[+-]\d\d:?\d\d| UTC(?= ))?"  # the zone's name in the journal's format `full`
)
# `Feb 15 17:37:45`; `dmesg -T` adds the year, and `dmesg -e` omits seconds.
_NAMED_MONTH = (
    r"(?P<month>[A-Z][a-z]{2}) {0,2}(?P<day>\d{1,2}) (?P<hour>\d\d):(?P<minute>\d\d)"
    r"(?::(?P<second>\d\d(?:\.\d{1,9})?))?(?: (?P<year>\d{4})(?=\]))?"
)
# After what `dmesg -x`, syslog's priority and Talos put before the time.
_DATE = re.compile(
    r"(?:<\d{1,10}>\d? ?)?"
    r"(?:[a-z]{3,8}\d? {0,5}:[a-z]{2,7} {0,4}: |[\w.-]{1,64}: [a-z]{2,8}: [a-z]{2,8}: )?"
    rf"\[?(?P<text>(?:[A-Z][a-z]{{2}} )?(?:(?P<iso>{_ISO})|{_NAMED_MONTH})"
    r"|(?P<unix>\d{9,10}\.\d{1,6}) )",
    re.ASCII,
)
_JOURNAL = re.compile(r'"__REALTIME_TIMESTAMP" ?: ?"(?P<microseconds>\d{1,17})"', re.ASCII)


def seconds_of(line: bytes) -> float | None:
    """Return when a line was written, for differences within one log; None without a time.

    The seconds since boot are preferred: the clock of a node may be set.
    """
    uptime = _uptime(line)
    found = _date(line) if uptime is None else None
    return uptime if found is None else _unix_seconds(found)


def text_of(line: bytes) -> str:
    """Return the time of a line as people read it, empty without one: a date as it is printed."""
    found = _date(line)
    seconds = None if found is None else _unix_seconds(found)
    if found is not None and seconds is not None:
        groups = found.groupdict()
        printed = groups.get("iso") or groups.get("month")
        return found["text"] if printed else _as_date(seconds)
    uptime = _uptime(line)
    return "" if uptime is None else f"{uptime:.3f} s after boot"


def _is_entry(line: bytes) -> bool:
    """Return True for an entry of the journal in JSON."""
    return line.startswith(b'{"')


def _uptime(line: bytes) -> float | None:
    return None if _is_entry(line) else uptime_seconds(_start(line))


def _start(line: bytes) -> str:
    return line[:MAX_PREFIX].decode(errors="replace")


def _date(line: bytes) -> re.Match[str] | None:
    if _is_entry(line):
        return _JOURNAL.search(line.decode(errors="replace"))
    return _DATE.match(_start(line))


def _unix_seconds(found: re.Match[str]) -> float | None:
    groups = found.groupdict()
    if groups.get("iso"):
        return unix_seconds(groups["iso"].encode())
    if groups.get("month"):
        return _of_named_month(groups)
    microseconds = groups.get("microseconds")
    seconds = int(microseconds) / 1e6 if microseconds else float(groups["unix"])
    return seconds if seconds < MAX_UNIX_SECONDS else None


def _of_named_month(groups: dict[str, str | None]) -> float | None:
    """Return None if there is no such month, day or time."""
    month, second = groups["month"], groups["second"] or "0"
    day, hour, minute = (int(groups[name] or 0) for name in ("day", "hour", "minute"))
    if month not in _MONTHS:
        return None
    number = 1 + _MONTHS.index(month)
    year = int(groups["year"] or NO_YEAR)
    try:
        begun = datetime(year, number, day, hour, minute, tzinfo=timezone.utc)
    except ValueError:
        return None
    return begun.timestamp() + float(second)


def _as_date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
