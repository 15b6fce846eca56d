"""Tells whether a line of NCCL's is complete: pure, from bytes to yes or no.

Formats are those that `rankscope_agent.contract.nccl` reads, here up to their ends.
"""

from __future__ import annotations

import re

from rankscope_agent.contract.nccl import warnings

MAX_RECORD_BYTES = 1536
"""Longest text examined: NCCL ends its own lines at 1,024 bytes, prefixes have below 400."""

_RANK = rb"\d{1,8}(?:\[[0-9a-f]{1,16}\])?"
_DIRECTION = rb"\[(?:send|receive)\]"
_ADAPTER = (
    rb"(?:NET|COLLNET)/(?:[\w+-]{1,40}|AWS Libfabric)/\d{1,3}(?:\(\d{1,8}\))?"
    rb"(?:/GDRDMA)?(?:\(PCI\))?(?:/Shared)?"
)
_LOCAL = (
    rb"P2P/(?:IPC|CUMEM|MNNVL|direct pointer|indirect/\d{1,8}\[[0-9a-f]{1,16}\])(?:/read)?(?:/CE)?"
    rb"|SHM(?:/(?:direct|CE)){0,2}|direct shared memory"
)
_TRANSPORT = rb"(?:" + _ADAPTER + rb"|" + _LOCAL + rb")"
_VIA = _TRANSPORT + rb" " + _DIRECTION
_WHOLE = re.compile(
    # a connection; RCCL adds its communicator
    rb"(?:(?:Channel \d{1,4}(?:/\d{1,4})?|Ring \d{1,4}|\d{1,4}) ?: )?" + _RANK + rb" -> " + _RANK
    + rb" ?(?:" + _DIRECTION + rb")? via " + _TRANSPORT
    + rb"(?: comm 0x[0-9a-f]{1,16} nRanks \d{1,8})?"
    # the same without ranks, as tutorials print it
    + rb"|\d{1,4} : " + _VIA + rb" via " + _VIA
    + rb"|CollNet \d{1,4}/\d{1,4} : \d{1,8} " + _DIRECTION + rb" via " + _ADAPTER
    + rb"|(?:\w{1,40} )?comm 0x[0-9a-f]{1,16} rank \d{1,8} n[rR]anks \d{1,8}"
    + rb"(?: [A-Za-z]{1,20} -?(?:0x)?[0-9a-f]{1,16}){0,12}"
    + rb" - (?:Init|Destroy|Abort) (?:START|COMPLETE)"
    + rb"|\d{1,4} coll channels, (?:\d{1,4} (?:collnet|nvls) channels, ){0,2}"
    + rb"\d{1,4} p2p channels(?:, \d{1,4} p2p channels per peer)?"
    + rb"|comm 0x[0-9a-f]{1,16} rank \d{1,8} n[rR]anks \d{1,8} nNodes \d{1,7} localRanks \d{1,7}"
    + rb" localRank \d{1,7} MNNVL \d"
    + rb"|Init timings[^\n:]{0,60}: rank \d{1,8} nranks \d{1,8} total [\d.]{1,20} \([^)\n]{1,200}\)"
    + rb"|NET/(?:IB|Socket) : Using ?\[\d{1,3}\][^\n]{1,600}"
    + rb"|Using (?:internal )?[nN]etwork (?:Socket|IB(?:ext)?(?:_v\d{1,2})?|gIB|FastSocket"
    + rb"|(?:AWS )?Libfabric|OFI|UCX|GPUDirectTCPX(?:_v\d{1,2})?|FasTrak)"
    + rb"|NCCL_\w{1,60} set (?:by environment )?to [^\n]{1,400}"
    # PyTorch's
    + rb"|[^\n]{0,400}Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d{1,18}"
    + rb"(?:, \w{1,40}(?:\(\w{1,8}\))?=[^\s,]{1,80}){1,8}\) ran for \d{1,18} milliseconds"
    + rb" before timing out\.?"
)  # fmt: skip

_ENDED = re.compile(
    rb"- (?:Init|Destroy|Abort) (?:START|COMPLETE)\Z|p2p channels per peer\Z"
    rb"|SHM/direct/direct\Z|P2P/(?:IPC|CUMEM)/read\Z"
)
"""Endings after which nothing can follow."""

_MARK = re.compile(rb"NCCL INFO +(?:\[Rank \d{1,8}\] )?")

_BEGINNING = re.compile(
    rb"Channel \d|Ring \d|\d{1,4} (?:coll|:)|"
    + _RANK
    + rb" ->|CollNet |ncclComm|comm 0x|Using\b|Init tim"
    rb"|NCCL_|NET/"
)
"""Beginnings of lines whose ending is known."""

_CUT_EARLY = re.compile(rb"NCCL(?: INFO)?(?: \S{0,8})?\Z|Watchdog caught")

_PREFIX_END = re.compile(rb":\d{1,10}:\d{1,10} \[-?\d{1,10}\](?: [\w./-]{1,80}:\d{1,5})?\Z")
_NCCL = re.compile(rb"NCCL (?:INFO|WARN) ")
_TOKEN = re.compile(rb"[\w.-]:\d{1,10}:\d{1,10} \[-?\d{1,10}\] (?:\S{1,80} )?NCCL (?:INFO|WARN)")
_RING_ORDER = re.compile(
    rb"(?:Channel \d{1,4}(?:/\d{1,4})?|Ring \d{1,4})(?: :(?: {1,6}\d{1,8}){0,2048})?\Z"
)
_RANKS = re.compile(rb"(?:: {0,6})?\d{1,8}(?: {1,6}\d{1,8})*\Z")
"""The order of a ring, and what may be the rest of it."""

_NCCL_END = re.compile(rb"NCCL (?:INFO|WARN)\Z")
_VERSION = re.compile(rb"\bNCCL version \d{1,2}\.\d{1,3}\.\d{1,3}")
_VERSION_END = re.compile(_VERSION.pattern + rb"\S{0,40}\Z")
_UNENDED = re.compile(rb"(?:^| )(?:to|from|with|of|for|the|in|on|by|peer|Call|Got|error)\Z")
"""A warning that never ends like this."""

_AROUND = 128
"""Bytes on either side of a break that are searched for a warning's words."""


def statement(record: bytes) -> bytes | None:
    """Return the message after `NCCL INFO`; None for any other line."""
    mark = _MARK.search(record, 0, MAX_RECORD_BYTES)
    return None if mark is None else record[mark.end() :].rstrip()


def is_whole(record: bytes) -> bool:
    """Return True if a line of NCCL is of a kind whose ending is known, and has it.

    Args:
        record: a line with or without `NCCL INFO` and what precedes it.
    """
    if len(record) > MAX_RECORD_BYTES:
        return False
    message = statement(record)
    return _WHOLE.fullmatch(record.strip() if message is None else message) is not None


def may_be_cut(record: bytes) -> bool:
    """Return True if a line begins like one whose ending is known, with or without that ending."""
    if len(record) > MAX_RECORD_BYTES:
        return False
    message = statement(record)
    if _BEGINNING.match(record.lstrip() if message is None else message):
        return True
    return _CUT_EARLY.search(record.rstrip()[-80:]) is not None


def is_broken(line: bytes, following: bytes) -> tuple[bool, ...]:
    """Return what was between two lines that are surely one: a space, nothing, or either.

    Returns:
        empty if they are not one; else True for a space, False for nothing, or both.
    """
    end, start = line.rstrip()[-MAX_RECORD_BYTES:], following.strip()[:MAX_RECORD_BYTES]
    return _in_prefix(end, start) or _in_version(end, start) or _in_warning(end, start)


def _in_prefix(end: bytes, start: bytes) -> tuple[bool, ...]:
    """Return what was at a break in NCCL's line prefix, or in a ring's order."""
    if (_PREFIX_END.search(end) and _NCCL.match(start)) or _NCCL_END.search(end):
        return (True,)
    if _RING_ORDER.search(end) and _RANKS.match(start):
        return (True,)
    if _spans(_TOKEN, end, start, blank=False) and not _spans(_TOKEN, end, start, blank=True):
        return (False,)
    return tuple(b for b in (True, False) if _spans(_NCCL, end, start, blank=b))


def _in_version(end: bytes, start: bytes) -> tuple[bool, ...]:
    """Return what was at a break before or in NCCL's version."""
    if b"NCCL error" in end and not _VERSION.search(end) and _VERSION.search(start):
        return (True, False)
    if _is_version(end):
        return ()
    return tuple(b for b in (True, False) if _spans(_VERSION, end, start, blank=b))


def _in_warning(end: bytes, start: bytes) -> tuple[bool, ...]:
    """Return what was at a break in a warning that is known only as a whole."""
    message = end.partition(b"NCCL WARN ")[2] or (end.lstrip() if end.startswith(b"NET/") else b"")
    if not message:
        return ()
    if _UNENDED.search(message):
        return (True, False)
    if _is_known(message) or _is_known(start):
        return ()
    before, after = message[-_AROUND:], start[:_AROUND]
    return tuple(b for b in (True, False) if _is_known(before + b" " * b + after))


def continues_ring(record: bytes, following: bytes) -> bool:
    """Return True if a line continues the order of a ring, which has several spaces in a row."""
    if len(record) > MAX_RECORD_BYTES:
        return False
    return (
        _RANKS.match(following.strip()) is not None
        and _RING_ORDER.search(record.rstrip()) is not None
    )


def _spans(pattern: re.Pattern[bytes], end: bytes, start: bytes, *, blank: bool) -> bool:
    """Return True if a pattern matches across the break between two lines."""
    before = end[-_AROUND:]
    match = pattern.search(before + b" " * blank + start[:_AROUND])
    return match is not None and match.start() < len(before) < match.end()


def _is_version(end: bytes) -> bool:
    return _VERSION_END.search(end[-_AROUND:]) is not None


def _is_known(message: bytes) -> bool:
    return warnings.classify(message.decode(errors="replace")).code != warnings.OTHER


def is_ended(record: bytes) -> bool:
    """Return True if a line of NCCL has an ending after which nothing can follow."""
    return _ENDED.search(record.rstrip()[-40:]) is not None
