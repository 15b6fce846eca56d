"""Messages of netlink, made by the numbers of the kernel's headers, decoded as pyroute2 does."""

from __future__ import annotations

import struct

from pyroute2.netlink.devlink import devlinkcmd
from pyroute2.netlink.rtnl.marshal import MarshalRtnl

NESTED = 0x8000  # NLA_F_NESTED


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


def attribute(kind: int, body: bytes) -> bytes:
    padding = bytes(-len(body) % 4)
    return struct.pack("=HH", 4 + len(body), kind) + body + padding


def nest(kind: int, *parts: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(parts))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def generic(of: type, command: int, *attributes: bytes):
    """Return a decoded message of generic netlink: struct genlmsghdr, then attributes."""
    decoded = of(message(20, struct.pack("=BBH", command, 1, 0) + b"".join(attributes)))
    decoded.decode()
    return decoded


def rtnetlink(data: bytes):
    return MarshalRtnl().parse(data)


def board(*more: bytes, bus: str = "pci", command: int = 51):
    return generic(devlinkcmd, command, text(1, bus), text(2, "0000:3b:00.0"), *more)
