"""Files of step records, read whole within bounds.

A trace may come from anyone. A few kilobytes of an archive can expand to terabytes, so the size
that a file declares is checked before it is unpacked, and unpacking stops at the bounds.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from zipfile import ZipFile

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS = 1 << 26
"""Records of one trace in memory: 16,384 ranks for 4,096 steps, some 6 GB."""

MAX_COLUMNS = 256
"""Columns of a trace; the contract has about 20."""

MAX_TEXT_BYTES = 1 << 31
"""Unpacked CSV: 16 million records of 120 bytes. Parsing it takes several times that."""

MAX_UNPACKED_BYTES = 1 << 33
"""Unpacked columns of the binary formats: all rows with 16 numbers each."""


class TooLargeError(ValueError):
    """A file holds more than a trace may; the message gives the size and the limit."""


def read(path: Path) -> pd.DataFrame:
    """Return the records of a file, in the format that its name indicates.

    Raises:
        TooLargeError: it holds more rows, columns or bytes than a trace may.
        OSError: it cannot be opened.
        ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile: it does not have that
            format.
        MemoryError: it is within the bounds, but not within this machine's memory.
    """
    records: pd.DataFrame = READERS[path.name](path)
    check_bound(len(records), MAX_ROWS, "rows")
    return records


def check_bound(seen: int, allowed: int, what: str) -> None:
    """Check that a trace does not exceed a limit.

    Raises:
        TooLargeError: it does.
    """
    if seen > allowed:
        raise TooLargeError(f"{seen:,} {what}, and a trace may have {allowed:,}")


class _Bounded(io.RawIOBase):
    """A stream that raises `TooLargeError` after `MAX_TEXT_BYTES`."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer)
        chunk = self._source.read(len(view))
        view[: len(chunk)] = chunk
        self._given += len(chunk)
        check_bound(self._given, MAX_TEXT_BYTES, "bytes of text")
        return len(chunk)


def _read_csv(path: Path) -> pd.DataFrame:
    with path.open("rb") as file:
        packed = path.suffix == ".gz"
        source = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
        stream = io.BufferedReader(_Bounded(source))
        header = stream.peek(1).partition(b"\n")[0]
        check_bound(header.count(b",") + 1, MAX_COLUMNS, "columns")
        return pd.read_csv(stream, nrows=MAX_ROWS + 1)


def _read_parquet(path: Path) -> pd.DataFrame:
    # Imported here, because a watch reads no files and has no pyarrow, which takes 170 MB.
    import pyarrow.parquet as pq

    from rankscope_analyzers.steps import parquet_columns

    with parquet_columns.errors_of_values():
        schema = pq.read_schema(path)
        check_bound(len(schema), MAX_COLUMNS, "columns")
        texts = parquet_columns.texts(schema)
        file = pq.ParquetFile(path, memory_map=False, pre_buffer=False, read_dictionary=texts)
        check_bound(file.metadata.num_rows, MAX_ROWS, "rows")
        check_bound(parquet_columns.unpacked_bytes(file), MAX_UNPACKED_BYTES, "bytes")
        table = file.read(columns=parquet_columns.readable(schema))
        unpacked = sum(_unpacked_bytes(table.column(name)) for name in texts)
        check_bound(unpacked, MAX_UNPACKED_BYTES, "bytes")
        # The types that pandas noted in the file are ignored: they may come from a stranger.
        plain = table.cast(_plain(table.schema))
        return cast("pd.DataFrame", plain.to_pandas(ignore_metadata=True))


def _unpacked_bytes(column: pa.ChunkedArray) -> int:
    """Return how many bytes a column of texts takes once every row has its own copy."""
    import pyarrow.compute as pc

    total = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
        total += pc.sum(lengths).as_py() or 0
    return total


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema with texts instead of dictionary-encoded texts."""
    import pyarrow as pa

    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    ]
    return pa.schema(fields, metadata=schema.metadata)


def _read_npz(path: Path) -> pd.DataFrame:
    try:
        with ZipFile(path) as archive:
            members = archive.infolist()
        check_bound(len(members), MAX_COLUMNS, "columns")
        check_bound(sum(member.file_size for member in members), MAX_UNPACKED_BYTES, "bytes")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            columns = {name: arrays[name] for name in arrays.files}
    except RuntimeError as error:  # unsupported version or compression, or a password
        raise ValueError(str(error)) from error
    return pd.DataFrame({name: values for name, values in columns.items() if values.ndim == 1})


READERS: Mapping[str, Callable[[Path], Any]] = {
    "records.csv": _read_csv,
    "records.csv.gz": _read_csv,
    "records.parquet": _read_parquet,
    "records.npz": _read_npz,
}
"""The formats in which a trace directory may hold its records, by file name."""
