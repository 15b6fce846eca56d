"""Where a watch keeps what must outlive it: one document of lines, each of which says what it is.

The first line names the format and its version, the last one counts the others. What was cut short
is therefore noticed, and what stands before the cut is used. A caller with more to keep adds a part
of its own name; readers that do not know it leave it alone.
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
"""Of a file: a job takes 16 KiB for each of its ranks, and a watch is meant for 16,384 of them."""

LONGEST_NAME = 4096
"""Characters of a part's name; a job's is a quarter of that at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that is kept.

    Args:
        kind: what it is, such as "job".
        name: which one, empty where there is only one.
        value: as JSON can hold it.
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
    """Nothing can be kept, or nothing that was kept can be used; the message says why."""


class UnreachableError(StoreError):
    """What was kept cannot be read now; nothing may be begun anew in its place."""


class ChangedError(StoreError):
    """Another watch has written, or may have: what is kept has to be read again."""


class Store(Protocol):
    """Keeps one document."""

    def read(self) -> Kept | None:
        """Return what was kept, None if nothing ever was.

        Raises:
            UnreachableError: it cannot be read now.
            StoreError: it is no such document.
        """
        ...

    def write(self, parts: Iterable[Part], now: float) -> int:
        """Keep some parts in place of what was kept; return how many found no room.

        Args:
            parts: the most important ones first.
            now: Unix time.

        Raises:
            ChangedError: what is kept is not what was read last.
            StoreError: they cannot be kept; what was kept before still is.
        """
        ...


def lines(parts: Iterable[Part], now: float, most_bytes: int) -> Iterator[bytes]:
    """Yield a document line by line, without the parts for which there is no room.

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
        line = _line({"part": part.kind, "name": part.name, "value": part.value})
        if len(line) <= room:
            room -= len(line)
            count += 1
            yield line
    yield _line({"parts": count})


def _line(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def parsed(document: bytes) -> Kept:
    """Return what a document holds.

    Raises:
        StoreError: it is no document of this version.
    """
    first, *others = document.split(b"\n")
    head = _object(first)
    if head is None or head.get("format") != FORMAT:
        raise StoreError("it does not begin as the state of a watch")
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
    problems = [f"{bad} of its lines make no sense"] if bad else []
    if ended != len(parts):
        problems.append(f"it is cut short: {len(parts)} of its parts are whole")
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
    """Return the newest document, the one before where that is damaged; None if there is none.

    Args:
        newest: returns it.
        before: returns the one before.

    Raises:
        StoreError: neither is one; that of the newest.
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
        why = problem or "; ".join(kept.problems if kept else ("it is not there",))
        saved = wording.clock(earlier.saved_unix_seconds)
        return replace(earlier, problems=(f"{why}: the one before is used, of {saved}",))
    if problem is not None:
        raise problem
    return kept


class FileStore:
    """Keeps a document in a file; readers see the old one or the new one, never a part.

    The one before is kept beside it: where a disk lost some of the new one, that is read instead.

    Args:
        path: of the file; its directory must be there.
        most_bytes: that are written or read.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most = most_bytes

    def read(self) -> Kept | None:
        """Return what the file holds, or the one before if it is damaged; None if there is none.

        Raises:
            StoreError: neither can be read, or they are too large, or no such documents.
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
        """Write some parts into the file; return how many found no room.

        Raises:
            StoreError: it cannot be written.
        """
        given = list(parts)
        written = -2  # the first line and the last one are no parts
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
    """Open a file that others cannot read: it names jobs, nodes and what was said of them."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
