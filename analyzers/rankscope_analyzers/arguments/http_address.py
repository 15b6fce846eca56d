"""The type of an option that takes the http address of a server, as people type it."""

from __future__ import annotations

import argparse
import re
from urllib.parse import urlsplit

LAST_PORT = 65535
"""A larger number is cut to 16 bits by the system, and is then the port of another server."""


def http_address(text: str) -> str:
    """Return an address as it was given, with or without a scheme, if a server can have it.

    Raises:
        argparse.ArgumentTypeError: none can.
    """
    why = "it contains white space" if re.search(r"\s", text) else _fault(text)
    if why:
        raise argparse.ArgumentTypeError(f"{text!r} is not an http address: {why}")
    return text


def _fault(text: str) -> str:
    """Return why no server has an address, empty if one can have it."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
    except ValueError as error:
        return str(error)
    if parts.scheme not in {"http", "https"}:
        return "it does not begin with http:// or https://"
    host = re.fullmatch(r"(\[.*\]|[^:]*)(:[^:]*)?", parts.netloc.rpartition("@")[2])
    if host is None:
        return "an IPv6 address is written in brackets"
    if not host[1]:
        return "it names no host"
    return "" if host[2] is None or _is_port(host[2][1:]) else f"ports are 1 to {LAST_PORT}"


def _is_port(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,5}", text)) and 0 < int(text) <= LAST_PORT
