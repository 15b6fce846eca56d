"""Parses the protocol buffers wire format, as far as the kubelet's answers require.

Format: https://protobuf.dev/programming-guides/encoding. Fields that a caller does not know are
skipped, because newer servers send them.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}


class WireError(ValueError):
    """Bytes are not a valid protocol buffer; the argument says what is wrong with them."""


def fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yield (field number, value) in order: an int for varints, the bytes of everything else.

    Raises:
        WireError: the message is truncated or has an invalid wire type.
    """
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if wire_type == LENGTH:
            size, position = _varint(message, position)
        elif wire_type in _FIXED:
            size = _FIXED[wire_type]
        else:
            raise WireError(f"field {number} has wire type {wire_type}, which does not exist")
        if size > end - position:
            raise WireError(f"field {number} of {size} bytes ends after the message of {end}")
        yield number, message[position : position + size]
        position += size


def messages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the embedded messages or strings of one field.

    Raises:
        WireError: the message is invalid.
    """
    for number, value in fields(message):
        if number == wanted and isinstance(value, memoryview):
            yield value


def text(message: memoryview, wanted: int) -> str:
    """Return a string field; the last occurrence counts, and an absent one is empty.

    Raises:
        WireError: the message is invalid.
    """
    found = ""
    for value in messages(message, wanted):
        found = bytes(value).decode("utf-8", "replace")
    return found


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise WireError("a number has more than 64 bits")
    raise WireError("a number is truncated")
