"""Mends what people paste: short logs as NCCL wrote them, whatever they went through."""

from __future__ import annotations

import re

from rankscope_analyzers.logs.hard_wraps import unwrap
from rankscope_analyzers.logs.pasted_text import plain

_STRIPPED = re.compile(
    rb"^[ \t>#]*((?:Channel \d+(?:/\d+)? ?: |Ring \d+ : |comm 0x|ncclComm\w+ comm 0x|Using network "
    rb"|NET/(?:IB|Socket|OFI|Plugin) ?: |Bootstrap ?: |\d+ coll channels|\[(?:send|receive)\] via )"
    rb"[^\n]*)",
    re.MULTILINE,
)
"""Lines of NCCL with a truncated beginning."""

_UNNAMED = re.compile(
    rb"(:\d{1,10}:\d{1,10} \[\d{1,3}\] (?:[\w./-]{1,80}:\d{1,5} )?)((?:INFO|WARN) )"
)
"""host:pid:tid [cudaDev] INFO, the prefix of NCCL's lines up to version 2.2."""


def mended(text: bytes) -> bytes:
    """Return a log as NCCL wrote it, as far as that can be determined."""
    return _named(unwrap(plain(text)))


def restored(text: bytes) -> bytes:
    """Return the lines of NCCL in a log whose readers cut off `NCCL INFO`, with it."""
    return b"".join(b"NCCL INFO %s\n" % line for line in _STRIPPED.findall(text))


def _named(text: bytes) -> bytes:
    """Return a log with NCCL's name added to its lines, which had none before 2.3."""
    return text if b"NCCL INFO" in text else _UNNAMED.sub(rb"\1NCCL \2", text)
