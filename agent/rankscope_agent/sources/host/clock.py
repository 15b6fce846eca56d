"""The state of the kernel's clock, read by adjtimex(2), which requires no privilege for reading."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass

STA_UNSYNC = 0x0040
STA_NANO = 0x2000
TIME_ERROR = -1

# modes, offset, freq, maxerror, esterror, status: the beginning of struct timex (linux/timex.h).
_HEADER = struct.Struct("@Illlli")
TIMEX_BYTES = 256  # the struct has 208


@dataclass(frozen=True, slots=True)
class ClockState:
    """How far the clock may be off.

    Args:
        offset_seconds: the correction that is still to be applied.
        max_error_seconds: upper bound of its error.
        synchronized: whether it is being disciplined.
    """

    offset_seconds: float
    max_error_seconds: float
    synchronized: bool


def parse_timex(data: bytes) -> ClockState:
    """Read a struct timex."""
    _, offset, _, max_error, _, status = _HEADER.unpack_from(data)
    unit = 1e-9 if status & STA_NANO else 1e-6
    return ClockState(offset * unit, max_error * 1e-6, not status & STA_UNSYNC)


def read_clock() -> ClockState:
    """Query the kernel.

    Raises:
        OSError: a sandbox forbids it.
    """
    buffer = ctypes.create_string_buffer(TIMEX_BYTES)
    library = ctypes.CDLL(None, use_errno=True)
    if library.adjtimex(buffer) == TIME_ERROR:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return parse_timex(buffer.raw)
