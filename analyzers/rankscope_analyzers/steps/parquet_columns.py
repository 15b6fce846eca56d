"""Which columns of a Parquet file are read, and their unpacked size by its footer; needs pyarrow.

Runs of one value take next to nothing in a file, however wide the value is and however many rows
and columns have it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope_analyzers.steps.forked import ChildEndedError, numbers_of
from rankscope_analyzers.steps.records import RecordError

MAX_VALUE_BYTES = 32
"""Bytes of a value that is not text: the widest number of the format, a decimal of 256 bits."""

NUMBER_BYTES = 8
"""Bytes of a number in memory, whatever it takes in the file."""


@contextmanager
def errors_of_values() -> Iterator[None]:
    """Convert pyarrow's errors about a file, which are of many types, to one type.

    Raises:
        RecordError: the block met such an error.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise RecordError(str(error)) from error


def texts(schema: pa.Schema) -> Sequence[str]:
    """Return the names of the columns of texts."""
    return [field.name for field in schema if is_text(field.type)]


def is_text(kind: pa.DataType) -> bool:
    """Return True for values of any length, dictionary-encoded or not."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def readable(schema: pa.Schema) -> Sequence[str]:
    """Return the names of the columns that are read: those of texts and of single numbers."""
    return [field.name for field in schema if is_text(field.type) or _is_number(field.type)]


def _is_number(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return False
    try:
        return bool(kind.bit_width <= 8 * MAX_VALUE_BYTES)
    except ValueError:  # it has no width, like `null`
        return bool(pa.types.is_null(kind))


def unpacked_bytes(file: pq.ParquetFile) -> int:
    """Return what the readable columns take in memory according to the file's footer.

    Texts count as stored in the file, once per dictionary that contains them.
    """
    schema, of_texts = file.schema_arrow, texts(file.schema_arrow)
    numbers = len(readable(schema)) - len(of_texts)
    return int(file.metadata.num_rows * numbers * NUMBER_BYTES) + sum(text_bytes(file, of_texts))


def text_bytes(file: pq.ParquetFile, names: Collection[str]) -> Sequence[int]:
    """Return the unpacked size of some columns of each row group, each value once.

    A child process looks it up: for some damaged footers pyarrow 26 ends the process that asks for
    a column of a row group, while it raises for those that read it.

    Raises:
        RecordError: the footer is damaged.
    """

    def sizes() -> Sequence[int]:
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        return [sum(_unpacked_sizes(group, names)) for group in groups]

    if not names:
        return [0] * file.metadata.num_row_groups
    try:
        return numbers_of(sizes)
    except ChildEndedError as error:
        raise RecordError(f"its footer cannot be read: pyarrow was {error}") from error


def _unpacked_sizes(group: pq.RowGroupMetaData, names: Collection[str]) -> Iterator[int]:
    for index in range(group.num_columns):
        chunk = group.column(index)
        if chunk.path_in_schema in names:
            yield int(chunk.total_uncompressed_size)
