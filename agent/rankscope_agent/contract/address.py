"""Listen addresses in the format of Prometheus exporters."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

AGENT_PORT = 9877
"""The default port of an agent."""

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\[\]:\s]*):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address to listen on; an empty `host` means every address, port 0 any free port."""

    host: str
    port: int


def parse_listen_address(text: str) -> ListenAddress:
    """Split `:9877`, `127.0.0.1:0` or `[::]:9877`.

    Raises:
        ValueError: the text has another format, or the port is above 65535.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"expected host:port such as :9877 or [::1]:9877, got {text!r}")
    return ListenAddress(match["host"].strip("[]"), int(match["port"]))


def is_loopback(host: str) -> bool:
    """Return True if a numeric address is reachable only from within this network namespace."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
