"""Storage for what must outlive a watch: one document of lines, each of which names its kind.

The first line names the format and its version, the last one counts the others, so that truncation
is noticed; the lines before it are used. A caller with additional state adds a part under its own
name; readers that do not know it ignore it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.text import wording
from rankscope_analyzers.text.sanitize import visible

FORMAT, VERSION = "rankscope watch state", 1

MOST_BYTES = 512 << 20
"""Bytes of a file: a job takes 16 KiB for each of its ranks, and a watch is meant for 16,384 of
them."""

LONGEST_NAME = 4096
"""Characters of a part's name; a job's is a quarter of that at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the state.

    Args:
        kind: what it is, such as "job".
        name: which one, empty if there is only one.
        value: JSON-ready.
    """

    kind: str
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Kept:
    """What was read.

    Args:
        saved_unix_seconds: when it was written.
        parts: in the order in which they were written.
        problems: sentences about what could not be used.
    """

    saved_unix_seconds: float
    parts: tuple[Part, ...]
    problems: tuple[str, ...] = ()


class StoreError(Exception):
    """Nothing can be saved, or no saved state can be used; the message says why."""


class UnreachableError(StoreError):
    """Saved state cannot be read now; it must not be replaced by a new one."""


class ChangedError(StoreError):
    """Another watch has written, or may have: the saved state has to be read again."""


class Store(Protocol):
    """Stores one document."""

    def read(self) -> Kept | None:
        """Return what was saved, None if nothing ever was.

        Raises:
            UnreachableError: it cannot be read now.
            StoreError: it is not such a document.
        """
        ...

    def write(self, parts: Iterable[Part], now: float) -> int:
        """Replace the document with some parts; return how many were left out.

        Args:
            parts: the most important ones first.
            now: Unix time.

        Raises:
            ChangedError: the document is not the one that was read last.
            StoreError: the parts cannot be saved; the previous document remains.
        """
        ...


def lines(parts: Iterable[Part], now: float, most_bytes: int) -> Iterator[bytes]:
    """Yield a document line by line, without the parts that do not fit or cannot be written.

    Args:
        parts: the most important ones first.
        now: Unix time.
        most_bytes: of the document.
    """
    first = _line({"format": FORMAT, "version": VERSION, "saved": now})
    room = most_bytes - len(first) - len(_line({"parts": 1 << 32}))
    yield first
    count = 0
    for part in parts:
        line = _line_of(part)
        if line is not None and len(line) <= room:
            room -= len(line)
            count += 1
            yield line
    yield _line({"parts": count})


def _line_of(part: Part) -> bytes | None:
    """Return a part's line, None if JSON has no form for its value: it must cost no other part."""
    try:
        return _line({"part": part.kind, "name": part.name, "value": part.value})
    except (TypeError, ValueError):
        return None


def _line(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def parsed(document: bytes) -> Kept:
    """Return the content of a document.

    Raises:
        StoreError: it is not a document of this version.
    """
    first, *others = document.split(b"\n")
    head = _object(first)
    if head is None or head.get("format") != FORMAT:
        raise StoreError("it does not begin like the state of a watch")
    if head.get("version") != VERSION:
        raise StoreError(f"it is of version {head.get('version')!a}, expected {VERSION}")
    saved = head.get("saved")
    if isinstance(saved, bool) or not isinstance(saved, int | float) or not math.isfinite(saved):
        raise StoreError("it does not say when it was written")
    return _parts(float(saved), others)


def _parts(saved: float, others: list[bytes]) -> Kept:
    parts: list[Part] = []
    bad, ended = 0, None
    for line in filter(None, others):
        found = _object(line)
        part = None if found is None else _part(found)
        if part is not None:
            parts.append(part)
        elif found is not None and isinstance(found.get("parts"), int):
            ended = found["parts"]
        else:
            bad += 1
    problems = [f"{bad} of its lines are invalid"] if bad else []
    if ended != len(parts):
        problems.append(f"it is truncated: {len(parts)} of its parts are complete")
    return Kept(saved, tuple(parts), tuple(problems))


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = untrusted_json.read(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _part(found: dict[str, Any]) -> Part | None:
    kind, name = found.get("part"), found.get("name")
    if not isinstance(kind, str) or not isinstance(name, str) or len(name) > LONGEST_NAME:
        return None
    return Part(kind, name, found.get("value"))


def whole_one(newest: Callable[[], Kept | None], before: Callable[[], Kept | None]) -> Kept | None:
    """Return the newest document, the previous one if that is damaged; None if there is none.

    Args:
        newest: returns it.
        before: returns the previous one.

    Raises:
        StoreError: neither is valid; the error is that of the newest.
    """
    problem: StoreError | None = None
    kept: Kept | None = None
    try:
        kept = newest()
    except StoreError as error:
        problem = error
    if kept is not None and not kept.problems:
        return kept
    earlier = None
    with suppress(StoreError):
        earlier = before()
    if earlier is not None and not earlier.problems:
        why = problem or "; ".join(kept.problems if kept else ("it does not exist",))
        saved = wording.clock(earlier.saved_unix_seconds)
        return replace(earlier, problems=(f"{why}: the previous one is used, from {saved}",))
    if problem is not None:
        raise problem
    return kept


class FileStore:
    """Stores a document in a file; readers see the old one or the new one, never a part.

    The previous one is kept next to it, and is read if a disk lost some of the new one.

    Args:
        path: of the file; its directory must exist.
        most_bytes: that are written or read.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most = most_bytes

    def read(self) -> Kept | None:
        """Return the file's content, or the previous one if it is damaged; None if there is none.

        Raises:
            StoreError: neither can be read, or they are too large, or not such documents.
        """
        return whole_one(lambda: self._read(self._path), lambda: self._read(self._before))

    @property
    def _before(self) -> Path:
        return self._path.with_name(f"{self._path.name}.before")

    def _read(self, path: Path) -> Kept | None:
        try:
            with path.open("rb") as file:
                document = file.read(self._most + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(str(error)) from error
        if len(document) > self._most:
            raise StoreError(f"it has more than {self._most} bytes")
        return parsed(document)

    def write(self, parts: Iterable[Part], now: float) -> int:
        """Write some parts into the file; return how many were left out.

        Raises:
            StoreError: it cannot be written.
        """
        if self._path.exists() and not self._path.is_file():  # it would be moved away
            raise StoreError(f"{visible(str(self._path))} is no regular file")
        given = list(parts)
        written = -2  # the first line and the last one are not parts
        temporary = self._path.with_name(f"{self._path.name}.new")
        try:
            with open(temporary, "wb", opener=_private) as file:
                for line in lines(given, now, self._most):
                    file.write(line)
                    written += 1
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileNotFoundError):
                self._path.replace(self._before)
            temporary.replace(self._path)
        except OSError as error:
            raise StoreError(visible(str(error))) from error
        return len(given) - written


def _private(path: str, flags: int) -> int:
    """Open a file that others cannot read: it names jobs, nodes and findings about them."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
