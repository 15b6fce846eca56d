"""Removes what log pipelines wrap around a program's lines, chunk by chunk, in bounded memory.

Most wrappers only prepend something to a line, which the parser of lines skips by itself. This
module handles those that change the text: Docker's JSON, the CRI's partial lines, terminal colours,
CR LF, and HTML escapes.
"""

from __future__ import annotations

import re

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.log_text.prefixes import CRI_STREAM, RFC3339

MAX_PENDING_BYTES = 1 << 20
"""Longest text without a line end that is kept: NCCL writes lines of at most 1 KiB, the CRI splits
at 16 KiB; anything longer is no log line and is passed on as it is."""

MAX_PARTIAL_BYTES = 64 << 10
"""Longest line joined from CRI parts: four of the 16 KiB at which container runtimes split."""

DOCKER_START = b'{"log":"'
OBJECT_START = b'{"'
"""A line written by a logger that emits JSON."""

_OBJECT_LINE = b"\n" + OBJECT_START

ESCAPE = b"\x1b"

ENTITIES = (
    (b"&gt;", b">"),
    (b"&lt;", b"<"),
    (b"&quot;", b'"'),
    (b"&#39;", b"'"),
    (b"&#x27;", b"'"),
    (b"&amp;", b"&"),
)
"""HTML escapes in a log that was copied from a page's source; `&` comes last."""

_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
# kubelet cri-client/pkg/logs/logs.go parseCRILog: time, stream, tags (the first is P or F), text.
_CRI_LINE = re.compile(RFC3339 + rb" (stdout|stderr) ([PF])(?::\S{0,64})? (.*)", re.DOTALL)
_CRI_START = re.compile(RFC3339 + rb" " + CRI_STREAM)
_CRI_PARTIALS = (b" stdout P", b" stderr P")

HOP_BYTES = 256
"""Bytes of text per jump from one `P` or `{` to the next: checking one costs a sixth of a
microsecond, in which a longer mark is searched for in some 250 bytes."""


class Unframer:
    """Turns chunks of a log into complete plain lines.

    Args:
        max_pending: bytes kept of a line without an end.
    """

    def __init__(self, max_pending: int = MAX_PENDING_BYTES) -> None:
        self._max_pending = max_pending
        self.oversized = 0
        """Number of texts without a line end that were passed on in pieces."""
        self._pending = b""
        self._partials: dict[bytes, bytes] = {}

    @property
    def pending_bytes(self) -> int:
        """Number of bytes held back because their line has no end yet."""
        return len(self._pending)

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that are complete by now, each with its line end."""
        end = chunk.rfind(b"\n") + 1
        if not end or len(chunk) - end >= self._max_pending:
            return self._feed_unended(self._pending + chunk)
        # Copied once at most: the copy is most of the cost of framing.
        whole = not self._pending and end == len(chunk)
        text = chunk if whole else b"".join((self._pending, memoryview(chunk)[:end]))
        self._pending = chunk[end:]
        return self._plain(text)

    def _feed_unended(self, data: bytes) -> bytes:
        """Keep a line that has no end yet, or pass it on if it is too long for a line."""
        # A progress bar can continue for hours without a line end, overwriting itself.
        end = (data.rfind(b"\n") + 1) or (data.rfind(b"\r", 0, -1) + 1)
        if not end and len(data) < self._max_pending:
            self._pending = data
            return b""
        if not end or len(data) - end >= self._max_pending:
            self.oversized += 1
            end = len(data)
        self._pending = data[end:]
        return self._plain(data[:end])

    def finish(self) -> bytes:
        """Return what is left at the end of the log."""
        rest = self._plain(self._pending) + b"".join(self._partials.values())
        self._pending = b""
        self._partials.clear()
        return rest

    def _plain(self, text: bytes) -> bytes:
        """Return the text without its wrapping; the first line shows which kind the log has."""
        if text.startswith(DOCKER_START):
            text = b"".join(_from_docker(line) for line in text.splitlines(keepends=True))
        elif _has_objects(text) and b"NCCL" in text:
            text = b"".join(_from_object(line) for line in text.splitlines(keepends=True))
        elif self._partials or (_CRI_START.match(text) and _has_partials(text)):
            text = b"".join(self._join(line) for line in text.splitlines(keepends=True))
        if ESCAPE in text:
            text = _COLOUR.sub(b"", text)
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        if b"&" in text:
            for entity, character in ENTITIES:
                text = text.replace(entity, character)
        return text

    def _join(self, line: bytes) -> bytes:
        """Hold back a part of a CRI line; return a complete one joined with the parts before it."""
        match = _CRI_LINE.match(line)
        if match is None:
            return line
        stream, tag, text = match.groups()
        if tag == b"P":
            joined = self._partials.get(stream, b"") + text.rstrip(b"\n")
            whole = joined.rfind(b"\r", 0, -1) + 1
            self._partials[stream] = joined[whole:][:MAX_PARTIAL_BYTES]
            return joined[:whole]
        return self._partials.pop(stream, b"") + text


def _has_objects(text: bytes) -> bool:
    """Look for a line that begins with an object, by its `{`, which is rare and quick to find."""
    if text.startswith(OBJECT_START):
        return True
    index = 0
    for _ in range(len(text) // HOP_BYTES):
        index = text.find(b"{", index + 1)
        if index < 0:
            return False
        if text.startswith(_OBJECT_LINE, index - 1):
            return True
    return text.find(_OBJECT_LINE, index) >= 0


def _has_partials(text: bytes) -> bool:
    """Look for the tag of a partial line, by its `P`, which is rare and quick to find."""
    index = -1
    for _ in range(len(text) // HOP_BYTES):
        index = text.find(b"P", index + 1)
        if index < 0:
            return False
        if text.endswith(_CRI_PARTIALS, 0, index + 1):
            return True
    rest = max(0, index - len(_CRI_PARTIALS[0]))
    return any(text.find(mark, rest) >= 0 for mark in _CRI_PARTIALS)


def _from_docker(line: bytes) -> bytes:
    """Return the text of a line of Docker's json-file driver; any other line unchanged."""
    if not line.startswith(DOCKER_START):
        return line
    try:
        text = untrusted_json.read(line)["log"]
    except ValueError:  # cut off, or something else that begins alike
        return line
    return text.encode(errors="replace") if isinstance(text, str) else line


def _from_object(line: bytes) -> bytes:
    """Return what NCCL printed within a line of JSON, under any key; any other line unchanged."""
    if b"NCCL" not in line or not line.startswith(OBJECT_START):
        return line
    try:
        values = untrusted_json.read(line).values()
    except (ValueError, AttributeError):
        return line
    message = next((v for v in values if isinstance(v, str) and "NCCL" in v), None)
    return line if message is None else message.rstrip("\n").encode(errors="replace") + b"\n"
