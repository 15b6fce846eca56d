"""Listen addresses in the form that Prometheus' exporters use."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

AGENT_PORT = 9877
"""Port that an agent listens on by default."""

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\[\]:\s]*):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen; an empty `host` means every address, port 0 any free port."""

    host: str
    port: int


def parse_listen_address(text: str) -> ListenAddress:
    """Split `:9877`, `127.0.0.1:0` or `[::]:9877`.

    Raises:
        ValueError: the text has another form, or the port is past 65535.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"expected host:port such as :9877 or [::1]:9877, got {text!r}")
    return ListenAddress(match["host"].strip("[]"), int(match["port"]))


def is_loopback(host: str) -> bool:
    """Return True if only processes of this network namespace reach a numeric address."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
