"""Undoes what web pages, chats and editors do to a pasted log: pure bytes.

Other kinds of spaces and arrows, tags and entities, escapes, frames of tables, lost line ends. A
log without any of these is returned unchanged; each change is made only where its mark is found.
"""

from __future__ import annotations

import quopri
import re

from rankscope_analyzers.logs.whole_records import MAX_RECORD_BYTES

_CHARACTERS: tuple[tuple[bytes, bytes], ...] = tuple(
    (character.encode(), plain)
    for characters, plain in (
        ("\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{IDEOGRAPHIC SPACE}\N{EN SPACE}", b" "),
        ("\N{ZERO WIDTH SPACE}\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}\N{WORD JOINER}", b""),
        ("\N{ZERO WIDTH NO-BREAK SPACE}\N{SOFT HYPHEN}", b""),
        ("\N{RIGHTWARDS ARROW}\N{LONG RIGHTWARDS ARROW}", b"->"),
    )
    for character in characters
)

_DASHED_ARROWS: tuple[bytes, ...] = tuple(
    f"{dash}>".encode() for dash in "\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}\N{NON-BREAKING HYPHEN}"
)
"""Arrows of which an editor changed the first half."""

_ESCAPES: tuple[tuple[bytes, bytes], ...] = (
    # entities that were escaped twice
    (b"&gt;", b">"),
    (b"&lt;", b"<"),
    (b"&nbsp;", b" "),
    # JSON's
    (b"\\u003e", b">"),
    (b"\\u003c", b"<"),
    (b"\\u003E", b">"),
    (b"\\u003C", b"<"),
    # Markdown's
    (b"\\[", b"["),
    (b"\\]", b"]"),
    (b"\\_", b"_"),
    (b"\\>", b">"),
    (b"\\<", b"<"),
)

_BREAK = re.compile(rb"<br ?/?>|</(?:p|div|li|tr)>")
_TAG = re.compile(
    rb"</?(?:p|pre|code|span|div|td|tr|table|li|b|i|em|strong|mark|font)(?: [^<>\n]{0,200})?>"
)
_TAG_SIGNS = (b"<br", b"</")
_BOLD = re.compile(rb"\*{1,3}(NCCL[^*\n]{0,12})\*{1,3}")
"""Markdown in which a search tool or its user highlighted matches."""

MAIL_COLUMNS = 76
"""The source of a mail has no longer lines: broken ones end with `=` (RFC 2045,
quoted-printable)."""

_FRAME = re.compile(
    rb"^[ \t]*(?:\|{1,2}|\xe2\x94\x82)([^\n]*?)[ \t]*(?:\|{1,2}|\xe2\x94\x82)[ \t]*$", re.MULTILINE
)
"""A row of a table or of a terminal's box: `|` or U+2502 on both sides."""

_FRAME_SIGNS = (b"|\n", b"| \n", b"\xe2\x94\x82")

MAX_TORN = 3
"""Records on one line that concurrent writers may have caused; more mean lost line ends."""

_TOKEN = re.compile(rb" (?=[\w.-]{1,255}:\d{1,10}:\d{1,10} \[-?\d{1,10}\] (?:\S{1,80} )?NCCL )")
_ESCAPED_END = re.compile(rb"(?:\\r)?\\n")


def plain(text: bytes) -> bytes:
    """Return a log as NCCL wrote it, as far as that can be determined."""
    if not text.isascii():
        text = _in_ascii(text)
    if b"\r" in text:
        text = text.replace(b"\r", b"\n")
    if b"=\n" in text and max(map(len, text.split(b"\n"))) <= MAIL_COLUMNS:
        text = _in_ascii(quopri.decodestring(text))
    if b"&" in text or b"\\" in text:
        text = _unescaped(text)
    if b"*NCCL" in text:
        text = _BOLD.sub(rb"\1", text)
    if any(sign in text for sign in _TAG_SIGNS):
        text = _TAG.sub(b"", _BREAK.sub(b"\n", text))
    if b"\tNCCL\t" in text or b"NCCL\tINFO" in text:
        text = text.replace(b"\t", b" ")
    if any(sign in text for sign in _FRAME_SIGNS):
        text = _FRAME.sub(rb"\1", text)
    if text.count(b"NCCL INFO") > MAX_TORN * (text.count(b"\n") + 1) or _has_paragraph(text):
        text = b"\n".join(map(_in_records, text.split(b"\n")))
    return text


def _has_paragraph(text: bytes) -> bool:
    """Return True if a line is longer than NCCL's records with their prefixes."""
    return max(map(len, text.split(b"\n"))) > MAX_RECORD_BYTES


def _in_ascii(text: bytes) -> bytes:
    for character, instead in _CHARACTERS:
        text = text.replace(character, instead)
    for arrow in _DASHED_ARROWS:
        text = text.replace(arrow, b"->")
    return text


def _unescaped(text: bytes) -> bytes:
    """Resolve escapes; a line of several records has escaped line ends too."""
    for escape, character in _ESCAPES:
        text = text.replace(escape, character)
    if b"\\n" in text:
        lines = text.splitlines(keepends=True)
        text = b"".join(
            _ESCAPED_END.sub(b"\n", x).replace(b"\\t", b" ") if x.count(b"NCCL") > 1 else x
            for x in lines
        )
    return text


def _in_records(line: bytes) -> bytes:
    """Put each record on its own line where complete ones follow each other."""
    if line.count(b"NCCL INFO") <= MAX_TORN:
        return line
    first = line.find(b"NCCL ")
    return line[:first] + _TOKEN.sub(b"\n", line[first:])
