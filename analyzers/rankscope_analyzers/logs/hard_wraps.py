"""Joins lines that a mail client, a ticket or a copy from a terminal broke at a column: pure bytes.

NCCL's own lines show whether a log was wrapped: a wrapped line lacks its known ending and has it
when joined with the next lines, which do not start a record. Its width then shows which other lines
continue. A log without such a line is returned unchanged.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankscope_analyzers.logs.record_starts import PREFIX, begins_record, has_record
from rankscope_analyzers.logs.whole_records import (
    MAX_RECORD_BYTES,
    continues_ring,
    is_broken,
    is_ended,
    is_whole,
    may_be_cut,
)

MAX_EVIDENT_LINES = 8
"""Lines of one record by which a log is recognised as wrapped: at 40 columns the longest line of a
connection takes five."""

MAX_CANDIDATES = 4000
"""Lines without their ending that are examined; if all of these are complete, nothing was
wrapped."""

MAX_LINES = 64
"""Lines joined to one record at most."""

MAX_FREE_GLUES = 3
"""Breaks of one record each of which may or may not have been a space."""

PREFIX_BYTES = 128
"""Bytes that contain the rest of a broken prefix and `NCCL`."""

MAX_LOST_BLANKS = 4
"""Spaces at the end of a line that copying loses: the order of a ring has three between ranks."""

QUOTE_SAMPLE = 400
"""Lines that are examined to see whether a log was quoted."""

_QUOTE = re.compile(rb"[ \t]*(?:[>|]{1,4} ?){1,8}")
_BROKEN_NAME = re.compile(rb"[ \t]{0,80}C?C?L (?:INFO|WARN) ")
_NCCL = re.compile(rb"[, \t]{0,80}NCCL ")
_RING = re.compile(rb"[\d\s]+\Z")


@dataclass(frozen=True, slots=True)
class Wrapping:
    """How a log was wrapped.

    Args:
        width: columns of the longest line that was broken.
        at_words: True if lines were broken only at spaces; else at the column, whatever was there.
        indent: spaces before each continuation line.
        prefixed: True if something precedes NCCL's own prefix.
        bare: True if NCCL's prefix is missing.
    """

    width: int
    at_words: bool
    indent: int
    prefixed: bool
    bare: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """A line that lacks its ending and has it when joined with the lines after it.

    Args:
        lines: their number.
        blanks: True if all of its breaks were spaces; None if they may have been either.
    """

    lines: int
    blanks: bool | None


def unwrap(text: bytes) -> bytes:
    """Return a log with broken lines joined; one that was not wrapped is returned unchanged."""
    lines = text.split(b"\n")
    bare = b"NCCL INFO" not in text
    quote = _quote(lines, bare=bare)
    if quote:
        lines = [_unquoted(line, quote) for line in lines]
    prefixed = _is_prefixed(lines)
    cuts = dict(_cuts(lines, prefixed=prefixed, bare=bare))
    if not cuts:
        return text
    wrapping = _measure(lines, cuts, prefixed=prefixed, bare=bare)
    return b"\n".join(_joined(lines, cuts, wrapping))


def _quote(lines: Sequence[bytes], *, bare: bool) -> bytes:
    """Return the text that precedes most of NCCL's lines, or the indentation of all lines."""
    spoken = [line for line in lines[: 4 * QUOTE_SAMPLE] if line.strip()]
    records = [line for line in spoken if has_record(line, bare=bare)] or spoken
    quotes = Counter(match[0] if (match := _QUOTE.match(line)) else b"" for line in records)
    quote, count = max(quotes.items(), key=lambda item: item[1], default=(b"", 0))
    if quote and 2 * count >= quotes.total():
        return quote
    leads = (line[: len(line) - len(line.lstrip(b" \t"))] for line in spoken)
    return min(leads, key=len, default=b"")


def _unquoted(line: bytes, quote: bytes) -> bytes:
    if line.startswith(quote):
        return line[len(quote) :]
    bare = quote.rstrip()
    return line[len(bare) :] if bare and line.startswith(bare) else line


def _is_prefixed(lines: Sequence[bytes]) -> bool:
    """Return True if launchers' prefixes precede NCCL's in most lines that have it."""
    records = itertools.islice((line for line in lines if b" NCCL " in line), QUOTE_SAMPLE)
    seen = [PREFIX.match(line) is not None for line in records]
    prefixes = sum(1 for line in lines[: 4 * QUOTE_SAMPLE] if PREFIX.match(line))
    return 2 * max(sum(seen), min(prefixes, len(seen))) > len(seen)


def _cuts(lines: Sequence[bytes], *, prefixed: bool, bare: bool) -> Iterator[tuple[int, Cut]]:
    """Yield the lines that lack their ending, by their index."""
    tried, cuts = 0, 0
    for index, (line, following) in enumerate(itertools.pairwise(lines)):
        if b"NCCL INFO" in following and b"NCCL " in line:
            continue
        named = b"NCCL " in following[:PREFIX_BYTES] or _BROKEN_NAME.match(following)
        if not named and not has_record(line, bare=bare):
            continue
        tried += 1
        cut = _cut_at(lines, index, prefixed=prefixed, bare=bare)
        if cut is None and not _begins(following, prefixed=prefixed, bare=bare):
            blanks = is_broken(line, following)
            cut = Cut(2, blanks[0] if len(blanks) == 1 else None) if blanks else None
        if cut is not None:
            cuts += 1
            yield index, cut
        elif not cuts and tried > MAX_CANDIDATES:
            return


def _begins(line: bytes, *, prefixed: bool, bare: bool) -> bool:
    """Return True if a line is empty or begins a record, so it cannot continue a broken one."""
    if not line.strip():
        return True
    return _NCCL.match(line) is None and begins_record(line, prefixed=prefixed, bare=bare)


def _cut_at(lines: Sequence[bytes], index: int, *, prefixed: bool, bare: bool) -> Cut | None:
    line = lines[index]
    if not may_be_cut(line) or is_whole(line):
        return None
    pieces = [line]
    for following in lines[index + 1 : index + MAX_EVIDENT_LINES]:
        if not following.strip() or begins_record(following, prefixed=prefixed, bare=bare):
            return None
        pieces.append(following)
        blanks = {all(glues) for glues in _glues(len(pieces)) if is_whole(_glued(pieces, glues))}
        if blanks:
            return Cut(len(pieces), blanks.pop() if len(blanks) == 1 else None)
    return None


def _glues(pieces: int) -> Iterator[tuple[bool, ...]]:
    """Yield which breaks may have been spaces: every combination for a few, else all or none."""
    breaks = pieces - 1
    if breaks <= MAX_FREE_GLUES:
        yield from itertools.product((True, False), repeat=breaks)
    else:
        yield (True,) * breaks
        yield (False,) * breaks


def _glued(pieces: Sequence[bytes], blanks: Sequence[bool]) -> bytes:
    text = bytearray(pieces[0].rstrip())
    for piece, blank in zip(pieces[1:], blanks, strict=True):
        text += b" " * blank + piece.strip()
    return bytes(text)


def _columns(line: bytes | bytearray, *, trimmed: bool = True) -> int:
    """Return the width of a line, by default without trailing spaces."""
    text = line.rstrip() if trimmed else line
    return len(text if text.isascii() else text.decode(errors="replace"))


def _measure(
    lines: Sequence[bytes], cuts: Mapping[int, Cut], *, prefixed: bool, bare: bool
) -> Wrapping:
    """Return how a log was wrapped, from the lines that prove it."""
    broken = [i for index, cut in cuts.items() for i in range(index, index + cut.lines - 1)]
    widths = sorted(_columns(lines[i]) for i in broken)
    width = widths[len(widths) * 9 // 10]  # a torn line may be longer than all others
    going_on = [lines[i + 1] for i in broken]
    indent = min((line[: len(line) - len(line.lstrip(b" \t"))] for line in going_on), key=len)
    near = [cut.blanks for i, cut in cuts.items() if _columns(lines[i]) in {width - 1, width}]
    certain = [blanks for blanks in near if blanks is not None]
    at_words = all(certain) if certain else len(broken) == 1 or widths[0] != widths[-1]
    return Wrapping(width, at_words, 0 if indent == b" " else len(indent), prefixed, bare)


def _joined(lines: Sequence[bytes], cuts: Mapping[int, Cut], wrapping: Wrapping) -> Iterator[bytes]:
    """Yield the records."""
    index = 0
    while index < len(lines):
        cut = cuts.get(index)
        pieces = list(lines[index : index + (cut.lines if cut else 1)])
        text = _assembled(pieces, wrapping)
        while len(pieces) < MAX_LINES and index + len(pieces) < len(lines):
            following = lines[index + len(pieces)]
            if not _continues(text, pieces[-1], following, wrapping):
                break
            pieces.append(following)
            text = _assembled(pieces, wrapping)
        yield text
        index += len(pieces)


def _continues(text: bytes, last: bytes, following: bytes, wrapping: Wrapping) -> bool:
    """Return True if a line continues a record.

    Args:
        text: the record so far.
        last: its last line.
        following: the line after it.
        wrapping: how the log was wrapped.
    """
    if not following.strip():
        return False
    if not (_is_full(last, following, wrapping) or continues_ring(text, following)):
        return False
    if begins_record(following, prefixed=wrapping.prefixed, bare=wrapping.bare):
        return False
    if b"NCCL" in text:
        if b"NCCL INFO" in following or b"NCCL WARN" in following or is_ended(text):
            return False
        if len(text) <= MAX_RECORD_BYTES and is_whole(text):
            blanks = (True,) if wrapping.at_words else (False, True)
            return any(is_whole(_glued([text, following], (blank,))) for blank in blanks)
    return True


def _is_full(last: bytes, following: bytes, wrapping: Wrapping) -> bool:
    """Return True if the next word did not fit into the line."""
    columns, word = _columns(last), following.split(maxsplit=1)[0]
    if wrapping.at_words:
        return columns + 1 + _columns(word) > wrapping.width
    room = wrapping.width - columns
    # Trailing spaces are lost on the way; the order of a ring has several in a row.
    return room in {0, 1} or (0 < room <= MAX_LOST_BLANKS and _RING.match(following) is not None)


def _assembled(pieces: Sequence[bytes], wrapping: Wrapping) -> bytes:
    """Return lines joined to the original one."""
    if len(pieces) == 1:
        return pieces[0]
    text = _as_measured(pieces, wrapping)
    if b"NCCL" not in text and not wrapping.bare:
        return text
    if is_whole(text) or not may_be_cut(text):
        return text
    others = (_glued(pieces, glues) for glues in _glues(len(pieces)))
    return next(filter(is_whole, others), text)


def _as_measured(pieces: Sequence[bytes], wrapping: Wrapping) -> bytes:
    """Join lines by the log's width alone."""
    text = bytearray(_trimmed(pieces[0], wrapping))
    room = wrapping.width - _columns(text, trimmed=False)
    for piece in pieces[1:]:
        rest = _trimmed(piece, wrapping)
        room_after = wrapping.width - _columns(rest, trimmed=False)
        lead = len(rest) - len(rest.lstrip(b" \t"))
        rest = rest[min(lead, wrapping.indent) :]
        if wrapping.at_words:
            text += b" " + rest.lstrip()
        else:
            kept = rest[:1].isspace()
            text += b" " * (not kept and (room if 0 <= room <= MAX_LOST_BLANKS else 1)) + rest
        room = room_after
    return bytes(text)


def _trimmed(line: bytes, wrapping: Wrapping) -> bytes:
    """Return a line without meaningless characters at its end."""
    whole = line.rstrip(b"\r")
    if wrapping.at_words or _columns(whole, trimmed=False) > wrapping.width:
        return line.rstrip()
    return whole
