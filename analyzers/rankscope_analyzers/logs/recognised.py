"""Whether a file is a log at all: what is not understood does not show that all is well. Pure."""

from __future__ import annotations

import re

_AT_START = re.compile(
    rb"\n(?:(?:<\d{1,3}>)?\[ {0,8}\+?\d{1,12}\.\d{1,9}\]"  # dmesg, its -d, /proc/kmsg
    rb"|\[\w{3} {1,2}[\w ]{1,10}[\d:]{5,8}(?: \d{4})?\] "  # dmesg -T and -H
    rb"|\d{1,3},\d{1,20},\d{1,20},[-c+]"  # /dev/kmsg
    rb"|\d{4}-\d\d-\d\dT[\d:.,]{8,15}(?:Z|[+-]\d\d:?\d\d) )"  # dmesg --time-format iso
)
"""Begins with the line end that the search can jump to: with `^` it takes ten times as long."""

_ANYWHERE = re.compile(
    rb"\bkernel(?:\[\d{1,10}\])?: "  # syslog, journalctl
    rb'|"(?:_TRANSPORT|SYSLOG_IDENTIFIER)" ?: ?"kernel"'  # journalctl -o json
)


def is_of_kernel(lines: bytes) -> bool:
    """Return True if a line looks like one of a kernel log, in any usual form."""
    if _AT_START.search(b"\n" + lines) is not None:
        return True
    return b"kernel" in lines and _ANYWHERE.search(lines) is not None


def is_text(chunk: bytes) -> bool:
    """Return True if a piece of a file may be lines of a program: it is neither empty nor binary.

    The end of a file that a crash cut off may be zeros.
    """
    kept = chunk.strip(b"\0 \t\r\n")
    return bool(kept) and b"\0" not in kept
