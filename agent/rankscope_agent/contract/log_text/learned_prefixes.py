"""Prefixes of launchers and log pipelines that `prefixes` does not know, learnt from tracebacks.

What precedes a traceback's first line precedes its other lines as well: a host, a pod, a time. Each
such prefix has a writer of its own. Lines within JSON objects are read from the member that has the
log's text.
"""

from __future__ import annotations

import re

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.log_text.prefixes import (
    MAX_RANK,
    NO_PREFIX,
    Prefix,
    split,
    unix_seconds,
)

MAX_LEARNED_BYTES = 256
"""Longest prefix that is learnt: log shippers put labels of a pod before its lines."""

MAX_SIZES = 8
"""Different lengths of prefixes; each is looked up for each line."""

MAX_LEARNED = 4096
"""Prefixes known of one log: a host or a pod each."""

_TIME = re.compile(
    rb"(?:\d{4}[-/.]\d\d[-/.]\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    rb"|\b\d{10,19}\b|\[ {0,8}\d{1,9}\.\d{1,9}\]"
)
"""A time, Unix seconds, or seconds since a start as the kernel prints them."""

_RANK = re.compile(
    rb"^\[(\d{1,7})(?:@[\w.-]{1,255})?\] $"  # Hydra, as mpiexec -l and -prepend-pattern print it
    rb"|\b[Rr]ank[ _:=-]?(\d{1,7})\b"
)

_MEMBER = re.compile(
    rb'^[ \t]*(?:\{[^\n]*?)?"(?:textPayload|message|msg|log|line|body|MESSAGE)" ?: ?'
    rb'("(?:[^"\\\n]|\\.){0,65536}")'
)
"""The text of a line in JSON, as log services export it; one object or one member in a line."""


class LearnedPrefixes:
    """The prefixes learnt from one log."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self._sizes: list[int] = []
        self._in_json = False

    def learn(self, before: bytes) -> None:
        """Remember what precedes the first line of a traceback."""
        known = _own_part(before)
        timeless = _TIME.sub(b"\0", known, count=1)
        size = len(timeless)
        if not known.strip() or len(known) > MAX_LEARNED_BYTES or len(self._known) >= MAX_LEARNED:
            return
        if size not in self._sizes:
            if len(self._sizes) >= MAX_SIZES:
                return
            self._sizes.append(size)
            self._sizes.sort(reverse=True)
        self._known.add(timeless)

    def forget(self, before: bytes) -> None:
        """Forget a learnt prefix, as `split` returns it: the lines that follow do not have it."""
        self._known.discard(before)

    def read_json(self) -> None:
        """Read the lines of this log from JSON from now on."""
        self._in_json = True

    def split(self, words: bytes) -> tuple[bytes, Prefix, bytes]:
        """Return the learnt prefix, what it and known ones after it say, and the line's own words.

        The learnt prefix is without its time, and empty if the line has none.
        """
        member = text_in_json(words) if self._in_json else None
        if member is not None:
            prefix, own = split(member)
            return b"{", prefix, own
        if not self._known:
            return b"", NO_PREFIX, words
        time = _TIME.search(words, 0, MAX_LEARNED_BYTES)
        timeless = words if time is None else words[: time.start()] + b"\0" + words[time.end() :]
        for size in self._sizes:
            if timeless[:size] in self._known:
                return self._found(timeless[:size], time, words, timeless[size:])
            if time is not None and words[:size] in self._known:
                return self._found(words[:size], None, words, words[size:])
        return b"", NO_PREFIX, words

    def _found(
        self, known: bytes, time: re.Match[bytes] | None, words: bytes, rest: bytes
    ) -> tuple[bytes, Prefix, bytes]:
        inner, own = split(rest)
        named = _RANK.search(known)
        rank, local = inner.rank, inner.local
        if rank is None and named is not None and int(named[1] or named[2]) < MAX_RANK:
            rank = int(named[1] or named[2])
        moment = unix_seconds(time[0]) if inner.time is None and time is not None else inner.time
        return known, Prefix(inner.writer, rank, local, moment), own


def _own_part(before: bytes) -> bytes:
    """Return a prefix without the tags at its end that `prefixes` knows."""
    own = before
    while (at := own.rfind(b"[")) > 0 and not split(before[at:])[1]:
        own = before[:at]
    return own


def text_in_json(words: bytes) -> bytes | None:
    """Return the log's text in a line of JSON; None if there is none."""
    member = _MEMBER.match(words) if words.lstrip()[:1] in (b"{", b'"') else None
    if member is None:
        return None
    try:
        text = untrusted_json.read(member[1])
    except ValueError:
        return None
    return str(text).rstrip("\n").encode(errors="replace")
