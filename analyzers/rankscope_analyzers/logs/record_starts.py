"""Tells lines that begin a record from the rest of a wrapped one: pure."""

from __future__ import annotations

import re

from rankscope_agent.contract.log_text.prefixes import (
    CRI_STREAM,
    DATE_TIME,
    KUBECTL,
    MPI_JOB,
    MPI_STREAM,
    PYTORCH,
    RANK,
    RAY,
    SERVICE,
    SERVICE_END,
    SYSLOG_TIME,
    TAG_END,
    TORCHRUN_ROLE,
    WRITER,
)

PREFIX = re.compile(
    rb"[ \t]*(?:\[?" + DATE_TIME
    + rb"|" + CRI_STREAM
    + rb"|" + KUBECTL
    + rb"|" + RAY
    + rb"|" + MPI_JOB + RANK + MPI_STREAM
    + rb"|" + PYTORCH + RANK + TAG_END
    + rb"|\[" + TORCHRUN_ROLE + RANK + TAG_END
    + rb"|" + RANK + rb": (?=\S)"  # srun --label
    + rb"|" + SYSLOG_TIME + rb" " + WRITER
    + rb"|" + SERVICE + SERVICE_END
    + rb"|\[[EWIF] |[EWIF]\d{4} \d\d:"  # PyTorch's and Google's loggers
    + rb"|(?:DEBUG|INFO|WARNING|ERROR):? (?:\d{2,4}-\d\d|\[)|(?:INFO|WARNING|ERROR):"
    + rb"|\d\d:\d\d:\d\d\b)"
)  # fmt: skip
"""What launchers, runtimes and loggers put before a line."""

_TOKEN = re.compile(rb"[ \t]*[\w.-]{1,255}:\d{1,10}:\d{1,10}(?: \[-?\d{1,10}\]|\Z)")
"""host:pid:tid [cudaDev], with which NCCL's lines begin."""

_TOKEN_END = re.compile(rb"[\w.-]:\d{1,10}:\d{1,10} \[-?\d{1,10}\] (?:\S{1,200} )?\Z")

_OTHERS = re.compile(
    rb"[ \t]*(?:NCCL version \d|# |Traceback |terminate called|Last error:|nccl[A-Z]\w{1,40}: "
    rb"|[\w.]{1,80}(?:Error|Exception|Warning): )"
)
"""Other beginnings of lines of NCCL, PyTorch and Python."""

BARE = re.compile(
    rb"[ \t#]*(?:Channel \d+(?:/\d+)? ?: |Ring \d+ : |comm 0x|ncclComm\w+ comm 0x|Using network "
    rb"|NET/(?:IB|Socket|OFI|Plugin) ?: |Bootstrap ?: |\d+ coll channels)"
)
"""Lines of NCCL with a truncated beginning."""

_MARKS = (b"NCCL INFO", b"NCCL WARN")
_NEAR = 360


def begins_record(line: bytes, *, prefixed: bool, bare: bool) -> bool:
    """Return True if a line cannot continue the line before it.

    Args:
        line: of a log that was wrapped.
        prefixed: True if launchers' or runtimes' prefixes precede all records of the log, so that
            NCCL's own may be the rest of a broken line.
        bare: True if the log has NCCL's lines without their prefixes.
    """
    if PREFIX.match(line) or _OTHERS.match(line):
        return True
    if bare and BARE.match(line):
        return True
    if prefixed:
        return False
    return _TOKEN.match(line) is not None or _has_token(line)


def _has_token(line: bytes) -> bool:
    """Return True if NCCL's whole prefix is in the line, after anything."""
    places = [line.find(mark) for mark in _MARKS]
    index = min((place for place in places if place >= 0), default=-1)
    return index >= 0 and _TOKEN_END.search(line[max(0, index - _NEAR) : index]) is not None


def has_record(line: bytes, *, bare: bool) -> bool:
    """Return True if a message of NCCL begins in a line."""
    if b"NCCL" in line or b"Watchdog caught" in line or line.startswith(b"NET/"):
        return True
    return bare and BARE.match(line) is not None
