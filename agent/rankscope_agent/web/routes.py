"""The description of a path: who may read it, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

TEXT_TYPE = "text/plain; charset=utf-8"
JSON_TYPE = "application/json"
HTML_TYPE = "text/html; charset=utf-8"

Access = Literal["open", "page", "api"]
"""Who is answered: everyone (the kubelet's probes; see `Request.trusted`), everyone unless pages
are protected too (scrapers), or only authenticated clients (those who read what jobs do)."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a route can use: the query's parameters and the two Accept headers.

    `trusted` means that the reader may see the contents of pages. It is false on open paths if
    pages are protected and no credentials were presented.
    """

    query: Mapping[str, Sequence[str]]
    accept: str
    accept_encoding: str
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: a whole body (`bytes`), or pieces that are sent as they arrive.

    `compress` allows the server to compress the pieces; whole bodies are sent as they are.
    """

    status: int
    content_type: str
    body: bytes | Iterator[bytes]
    headers: tuple[tuple[str, str], ...] = ()
    compress: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """How a path is answered; answers of `heavy` routes are long, and few are sent at once."""

    answer: Callable[[Request], Response]
    access: Access = "api"
    heavy: bool = False


def sentence(status: int, text: str) -> Response:
    """Return an answer of one sentence of our own; it never contains text from a request."""
    return Response(status, TEXT_TYPE, f"{text}\n".encode())
