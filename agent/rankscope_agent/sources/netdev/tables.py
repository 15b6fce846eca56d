"""Pure parsers of the kernel's network tables: /proc/net/dev, snmp, netstat, and speeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_COUNTER = 2**64 - 2
"""Largest count accepted; drivers without the counter may return all bits set."""

BYTES_PER_MEGABIT = 1e6 / 8

# Columns after the name in /proc/net/dev, see dev_seq_printf_stats in the kernel's net-procfs.c.
_DEV_COLUMNS = 16
_TX_OFFSET = 8


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counters of one interface; `dropped` in /proc/net/dev includes missed frames."""

    receive_bytes: int
    transmit_bytes: int
    receive_errors: int
    transmit_errors: int
    receive_dropped: int
    transmit_dropped: int


def parse_net_dev(text: str) -> Mapping[str, Traffic]:
    """Read /proc/net/dev; lines of another format are left out."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.rpartition(":")
        numbers = [parse_count(part) for part in rest.split()]
        if not colon or len(numbers) < _DEV_COLUMNS or None in numbers:
            continue
        counts = [number or 0 for number in numbers]
        receive, transmit = counts[:_TX_OFFSET], counts[_TX_OFFSET:]
        found[name.strip()] = Traffic(
            receive[0], transmit[0], receive[2], transmit[2], receive[3], transmit[3]
        )
    return found


def parse_paired_table(text: str) -> Mapping[str, Mapping[str, int]]:
    """Read /proc/net/snmp or netstat: a line of names, then one of numbers, per protocol."""
    found: dict[str, dict[str, int]] = {}
    lines = text.splitlines()
    for names_line, numbers_line in zip(lines[::2], lines[1::2], strict=False):
        protocol, _, names = names_line.partition(":")
        other, _, numbers = numbers_line.partition(":")
        if protocol != other:
            continue
        counts = zip(names.split(), map(parse_count, numbers.split()), strict=False)
        found[protocol] = {name: count for name, count in counts if count is not None}
    return found


def parse_count(text: str) -> int | None:
    """Read a counter; return None for anything else, negative numbers, or more than 64 bits."""
    if not (text.isascii() and text.isdigit()) or len(text) > 20:
        return None
    value = int(text)
    return value if value <= MAX_COUNTER else None


def parse_speed(text: str) -> float | None:
    """Convert megabits to bytes per second; None if unknown (-1, or 2^32 - 1 in old kernels)."""
    value = parse_count(text)
    return None if value is None or value in (0, 2**32 - 1) else value * BYTES_PER_MEGABIT
