"""The prefixes of messages in the many formats of kernel logs, and the writer of a message.

dmesg, its options, journald, syslog, /dev/kmsg and klogctl each prepend something else. Here,
prefixes only distinguish the kernel's lines from those of programs, which may contain anything, and
give the seconds since boot if printed; `line_times` reads dates.
"""

from __future__ import annotations

import re

from rankscope_agent.contract.log_text.prefixes import ISO_TIME, SYSLOG_TIME

MAX_LINE = 2048
"""Bytes of a line that are examined: the kernel's own records end at 1,024 (LOG_LINE_MAX)."""

MAX_PREFIX = 200
"""Longest prefix of a message: dates, host names of up to 64 characters and tags."""

# `2026-..T..Z host tag: `, `Feb 15 17:37:45 host tag: `, optionally with a level before the tag.
_SYSLOG = re.compile(
    rf"\s*(?:<\d*>\d? ?)?(?:{SYSLOG_TIME.decode()}|{ISO_TIME.decode()})"
    r" \S{1,64} (?:[A-Z]{3,8} )?(?P<tag>[\w./@-]{1,64})(?:\[\d*\])?: "
)
_PROCESS_TAG = re.compile(r"(?:^|\s)[\w./@-]{1,64}\[\d*\]: ")
_FACILITY = re.compile(r"(?P<facility>[a-z]{3,8}\d?) {0,5}:(?P<level>[a-z]{2,7}) {0,4}: ")
_QUOTED = re.compile(r"=[\"']|msg=")
_KMSG = re.compile(r"(?P<priority>\d{1,10}),\d*,\d*,[^;]*;")
_KLOG = re.compile(r"<(?P<priority>\d{1,10})>")
_KERNEL_TAGS = ("kernel", "kern")

_STAMP = re.compile(r"\[[ \d.]{1,24}\] ")
_UPTIME = re.compile(r"\[ {0,12}(\d{1,10}\.\d{1,9})\]")
_KMSG_TIME = re.compile(r"\d{1,10},\d{1,20},(\d{1,18}),")

FACILITY_BITS = 3
"""A record's priority is its facility, shifted left by three, plus its level (sys/syslog.h)."""


def is_kernel(prefix: str) -> bool:
    """Return True if a message's prefix shows that the kernel, not a program, wrote it.

    Facility 0 is the kernel's: programs that write to /dev/kmsg or syslog cannot use it.
    """
    if not prefix or _STAMP.fullmatch(prefix):
        return True
    if len(prefix) > MAX_PREFIX or _QUOTED.search(prefix):
        return False
    record = _KMSG.match(prefix) or _KLOG.match(prefix)
    if record is not None and int(record["priority"]) >> FACILITY_BITS:
        return False
    facility = _FACILITY.search(prefix)
    if facility is not None and facility["facility"] != "kern":
        return False
    tagged = _SYSLOG.match(prefix)
    if tagged is not None:
        return tagged["tag"] in _KERNEL_TAGS
    return _PROCESS_TAG.search(prefix) is None


def uptime_seconds(line: str) -> float | None:
    """Return the seconds since boot at the beginning of a line; None if there are none."""
    start = line[:MAX_PREFIX]
    record = _KMSG_TIME.match(start)
    if record is not None:
        return int(record[1]) / 1e6
    printed = _UPTIME.search(start)
    return float(printed[1]) if printed is not None else None
