"""Reads log files of any size in chunks: plain, gzip (complete or truncated), or standard input."""

from __future__ import annotations

import codecs
import os
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from rankscope_analyzers.intake.reopened_file import ReopenedFile
from rankscope_analyzers.intake.whole_lines import WholeLines
from rankscope_analyzers.text.sanitize import visible

CHUNK_BYTES = 96 << 10
"""Bytes read at a time: well below the size from which malloc maps and faults in new pages for each
buffer (128 KiB), which makes reading three times slower, and small enough for a core's second-level
cache."""

GZIP_START = b"\x1f\x8b"

UTF_16_STARTS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Byte order marks of texts that PowerShell's redirection wrote."""


class LogError(Exception):
    """A log cannot be read; the argument says which and why."""


class Readable(Protocol):
    """A file as far as logs need one."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, none at the end."""
        ...


Tell = Callable[[str], None]
"""Takes a sentence about what is not read of a log, although the rest is."""


def tell_user(sentence: str) -> None:
    """Write a sentence to standard error."""
    sys.stderr.write(f"{visible(sentence)}\n")


def chunks(name: str, *, stays_open: bool = True, tell: Tell = tell_user) -> Iterator[bytes]:
    """Yield a log's bytes, as UTF-8 if it begins with another encoding's mark.

    Args:
        name: of the file; `-` is standard input.
        stays_open: False to open a regular file anew for each chunk.
        tell: is told if compressed data is damaged or cut off.

    Raises:
        LogError: it cannot be opened or read.
    """
    pieces = _bytes_of(name, tell, stays_open=stays_open)
    start = next(pieces, b"")
    if start.startswith(UTF_16_STARTS):
        yield from _from_utf_16(start, pieces)
        return
    yield start.removeprefix(codecs.BOM_UTF8)
    yield from pieces


def _from_utf_16(start: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
    yield decoder.decode(start).encode(errors="replace")
    for piece in pieces:
        yield decoder.decode(piece).encode(errors="replace")
    yield decoder.decode(b"", final=True).encode(errors="replace")


def _bytes_of(name: str, tell: Tell, *, stays_open: bool) -> Iterator[bytes]:
    """Yield what a file holds, inflated if it is compressed."""
    try:
        with _opened(name, stays_open=stays_open) as source:
            start = source.read(CHUNK_BYTES)
            if start.startswith(GZIP_START):
                if not (yield from _inflated(source, start)):
                    tell(f"{name}: compressed data is damaged or cut off; read so far")
                return
            yield from _pieces(source, start)
    except OSError as error:
        raise LogError(f"cannot read {name}: {error.strerror or error}") from error


def _pieces(source: Readable, start: bytes) -> Iterator[bytes]:
    """Yield a file's first bytes and the rest, cut at ends of lines where that is cheaper."""
    if isinstance(source, FileIO) and len(start) == CHUNK_BYTES and _in_lines(source, start):
        source = WholeLines(source, CHUNK_BYTES)
    while start:
        yield start
        start = source.read(CHUNK_BYTES)


def _in_lines(source: FileIO, start: bytes) -> bool:
    """Return True for a regular file in which a byte marks the end of a line."""
    regular = stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    return regular and not start.startswith(UTF_16_STARTS)


@contextmanager
def _opened(name: str, *, stays_open: bool) -> Iterator[Readable]:
    if name == "-":
        yield sys.stdin.buffer
        return
    if not stays_open and Path(name).is_file():
        yield ReopenedFile(name)
        return
    with open(name, "rb", buffering=0) as source:  # noqa: PTH123 - unbuffered, and `-` aside
        yield cast("BinaryIO", source)


def _inflated(source: Readable, start: bytes) -> Generator[bytes, None, bool]:
    """Yield the content of a gzip file, up to where it is cut off or damaged; return True if whole.

    Zeros after its end are padding, as tapes and block copies leave it.
    """
    inflate = zlib.decompressobj(wbits=31)
    data, whole, more = start, False, True
    while more:
        try:
            text = inflate.decompress(data, CHUNK_BYTES)
        except zlib.error:
            return whole and not data.strip(b"\0")
        if text:
            yield text
        whole = inflate.eof
        data = inflate.unconsumed_tail or inflate.unused_data or source.read(CHUNK_BYTES)
        # All input was consumed, and there may be more output.
        more = bool(data) or (len(text) == CHUNK_BYTES and not whole)
        if whole:  # files with several members, as rotation appends them
            inflate = zlib.decompressobj(wbits=31)
    return whole
