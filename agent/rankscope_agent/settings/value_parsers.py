"""Parsers for the values of settings; errors state what was expected."""

from __future__ import annotations

import math
import re
from pathlib import Path
from urllib.parse import urlsplit

from rankscope_agent.contract.address import ListenAddress, parse_listen_address

LOG_LEVELS = ("debug", "info", "warning", "error")

MAX_SECONDS = 86_400.0
"""Longest interval or deadline accepted: a day, far beyond any useful value and far below timer
limits."""

MAX_SERIES_LIMIT = 10_000_000
"""Largest series limit accepted: more than one Prometheus holds, so a larger number is a
mistake."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def parse_optional_listen_address(text: str) -> ListenAddress | None:
    """Split `:9879`; an empty text is None.

    Raises:
        ValueError: the text has another format, or the port is above 65535.
    """
    return parse_listen_address(text) if text else None


def parse_remote_address(text: str) -> ListenAddress | None:
    """Split `localhost:28028`; an empty text is None.

    Raises:
        ValueError: the text has another format, lacks the host, or has an invalid port.
    """
    if not text:
        return None
    address = parse_listen_address(text)
    if not address.host or not address.port:
        raise ValueError(f"expected host:port such as localhost:28028, got {text!r}")
    return address


def parse_seconds(text: str) -> float:
    """Read a duration in seconds, above 0 and at most a day.

    Raises:
        ValueError: the text is not such a number.
    """
    expected = f"expected seconds above 0 and at most {MAX_SECONDS:.0f}, got {text!r}"
    try:
        value = float(text)
    except ValueError:
        raise ValueError(expected) from None
    if math.isnan(value) or not 0 < value <= MAX_SECONDS:
        raise ValueError(expected)
    return value


def parse_seconds_or_none(text: str) -> float:
    """Read a duration in seconds, at most a day; 0 means none.

    Raises:
        ValueError: the text is not such a number.
    """
    return 0.0 if text.strip() == "0" else parse_seconds(text)


def parse_max_series(text: str) -> int:
    """Read the series limit.

    Raises:
        ValueError: the text is not a whole number from 1 to `MAX_SERIES_LIMIT`.
    """
    if not re.fullmatch(r"[0-9]{1,8}", text) or not 1 <= int(text) <= MAX_SERIES_LIMIT:
        raise ValueError(f"expected a whole number from 1 to {MAX_SERIES_LIMIT}, got {text!r}")
    return int(text)


def parse_log_level(text: str) -> str:
    """Read a log level, in upper or lower case.

    Raises:
        ValueError: the text is not one of `LOG_LEVELS`.
    """
    if text.lower() not in LOG_LEVELS:
        raise ValueError(f"expected one of {', '.join(LOG_LEVELS)}, got {text!r}")
    return text.lower()


def parse_node_name(text: str) -> str:
    """Read the node's name, which must be usable as a label value.

    Raises:
        ValueError: the text is blank or contains control characters.
    """
    if not text.strip() or not text.isprintable():
        raise ValueError(f"expected a name of printable characters, got {text!r}")
    return text


def parse_path(text: str) -> Path:
    """Read a directory's path; its collector checks whether it exists.

    Raises:
        ValueError: the text is empty or contains a NUL byte.
    """
    if not text or "\0" in text:
        raise ValueError(f"expected the path of a directory, got {text!r}")
    return Path(text)


def parse_optional_path(text: str) -> Path | None:
    """Read a file's path; an empty text means none.

    Raises:
        ValueError: the text contains a NUL byte.
    """
    return parse_path(text) if text else None


def parse_log_paths(text: str) -> tuple[Path, ...]:
    """Read paths of logs, separated by commas; only their last parts may contain wildcards.

    `%h` and `%p`, which stand for host and process in NCCL_DEBUG_FILE, are wildcards too.

    Raises:
        ValueError: a path is not absolute, or one of its directories contains wildcards.
    """
    parts = (re.sub("%[hp]", "*", part.strip()) for part in text.split(","))
    paths = tuple(parse_path(part) for part in parts if part)
    for path in paths:
        if not path.is_absolute() or re.search(r"[*?\[]", str(path.parent)):
            raise ValueError(
                f"expected absolute paths with wildcards in the last part only, got {str(path)!r}"
            )
    return paths


def parse_jitter(text: str) -> float:
    """Read a maximum wait in seconds, from 0 (none) to an hour.

    Raises:
        ValueError: the text is not such a number.
    """
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) or float(text) > 3600:
        raise ValueError(f"expected seconds from 0 to 3600, got {text!r}")
    return float(text)


def parse_api_url(text: str) -> str:
    """Read the URL of an API server; an empty text means none.

    Raises:
        ValueError: the text is not an http or https URL consisting only of a host.
    """
    if text and not re.fullmatch(r"https?://[A-Za-z0-9.\-\[\]:]+/?", text):
        raise ValueError(f"expected http://host:port or https://host:port, got {text!r}")
    return text.rstrip("/")


def parse_http_url(text: str) -> str:
    """Read the address of a page; an empty text means none.

    Brackets are accepted around IPv4 addresses too: manifests cannot know the kind of a node's
    address.

    Raises:
        ValueError: the text is not an http or https address with a host.
    """
    if not text:
        return ""
    text = re.sub(r"^(https?://)\[([0-9.]+)\]", r"\1\2", text)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # such as a port that is not a number
        usable = False
    if not usable or not text.isprintable() or " " in text:
        raise ValueError(f"expected an address such as http://localhost:9400/metrics, got {text!r}")
    return text


def parse_switch(text: str) -> bool:
    """Read a switch from an environment variable: 1 or 0.

    Raises:
        ValueError: the text is neither.
    """
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(f"expected 1 or 0, got {text!r}")
    return text.lower() in _TRUE
