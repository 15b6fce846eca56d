"""What stands before a program's own words on a line of a log: launchers' and runtimes' tags.

A line about steps begins with one of its framework's words right after these; the same words
inside of a sentence, a quotation or an argument are no such line.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

MAX_HEAD = 512
"""Bytes of a line in which its tags are looked for: the longest seen have below 200."""

# In this order: the CRI's and other time stamps, [..] of torchrun, PyTorch, mpirun, kubectl,
# DeepSpeed and Megatron-LM, Ray's (Name pid=1, ip=..), srun --label, mpirun, journald, docker
# compose, levels of Python's logging, white space.
_HEAD = re.compile(
    rb"(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d\S{0,32}\s{1,4}"
    rb"(?:std(?:out|err) [PF](?::\S{0,64})? )?"
    rb"|\[[^\]\n]{1,200}\](?:<std(?:out|err)>)?:?"
    rb"|\([A-Za-z_]\w{0,60} pid=[^)\n]{1,100}\)"
    rb"|\d{1,6}: ?(?=\D)"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,255} [\w.@-]{1,255}\[\d{1,10}\]: "
    rb"|[\w.-]{1,120} {1,40}\| "
    rb"|(?:INFO|WARNING|DEBUG)(?::[\w.]{1,80}:| ?[:|-]? )|[-|] "
    rb"|\s){0,24}"
)
_STAMP = re.compile(
    rb"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
)


def head_end(line: bytes) -> int:
    """Return where a line's own words begin."""
    match = _HEAD.match(line, 0, MAX_HEAD)
    return match.end() if match else 0


def stamp(head: bytes) -> float | None:
    """Return the time in a head as seconds, None without one.

    Without a zone it is taken for UTC: good for differences within one log alone.
    """
    match = _STAMP.search(head, 0, MAX_HEAD)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    fraction = int(match[7].ljust(9, b"0")) / 1e9 if match[7] else 0.0
    return moment.timestamp() + fraction - _offset(match[8])


def _offset(zone: bytes | None) -> int:
    """Return the seconds by which a zone is ahead of UTC."""
    if zone is None or zone == b"Z":
        return 0
    digits = zone[1:].replace(b":", b"")
    ahead = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return ahead if zone.startswith(b"+") else -ahead
