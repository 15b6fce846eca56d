"""Safetensors files: a header in JSON, then the tensors, without gaps.

The format has no checksums: sizes can be compared, contents cannot. Format: the README of
huggingface/safetensors, whose library refuses the same files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.checkpoints.problems import FileProblem, wrong_size
from rankscope_analyzers.checkpoints.stretch import Stretch

MAX_HEADER_BYTES = 100_000_000
"""Limit of the library."""

ELEMENT_BITS: Mapping[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
}
"""Widths of elements; tensors of other types are not measured."""


def looks_like(head: bytes) -> bool:
    """Return True if a file's first nine bytes begin a header."""
    return (
        len(head) >= 9
        and int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES
        and (head[8:9] == b"{")
    )


def read(file: Stretch) -> Mapping[str, Any]:
    """Check a file, and return its header: tensors by name, and `__metadata__`.

    Raises:
        FileProblem: it is not whole.
    """
    size = int.from_bytes(file.read(0, 8), "little")
    if file.size < 8 or (size <= MAX_HEADER_BYTES and file.size < 8 + size):
        raise FileProblem("truncated", f"ends in its header, after {file.size} bytes")
    if size > MAX_HEADER_BYTES:
        raise FileProblem("unparseable", f"announces a header of {size} bytes")
    header = _header(file.read(8, size))
    expected = 8 + size + _data_size(header)
    if file.size != expected:
        raise wrong_size(file.size, expected)
    return header


def _header(body: bytes) -> Mapping[str, Any]:
    try:
        header = untrusted_json.read(body)
    except ValueError:
        raise FileProblem("unparseable", "has a header that is not JSON") from None
    if not isinstance(header, dict):
        raise FileProblem("unparseable", "has a header that is not an object")
    return header


def _data_size(header: Mapping[str, Any]) -> int:
    """Return the bytes after the header; tensors must be contiguous."""
    places = []
    for name, tensor in header.items():
        if name != "__metadata__":
            begin, end, size = _place(name, tensor)
            if size is not None and end - begin != size:
                raise FileProblem(
                    "unparseable", f"gives {name[:200]!r} {end - begin} bytes instead of {size}"
                )
            places.append((begin, end))
    last = 0
    for begin, end in sorted(places):
        if begin != last:
            raise FileProblem("unparseable", f"has a gap or an overlap at byte {last} of its data")
        last = end
    return last


def _place(name: str, tensor: Any) -> tuple[int, int, int | None]:
    match tensor:
        case {"dtype": str(kind), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            bits = ELEMENT_BITS.get(kind)
            sizes = [one for one in shape if type(one) is int and 0 <= one < 1 << 62]
            if len(sizes) == len(shape) <= 64 and 0 <= begin <= end < 1 << 62:
                return begin, end, None if bits is None else math.prod(sizes) * bits // 8
    raise FileProblem("unparseable", f"describes {name[:200]!r} in a form that the format lacks")
