"""What a path is: who may read it, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

TEXT_TYPE = "text/plain; charset=utf-8"
JSON_TYPE = "application/json"
HTML_TYPE = "text/html; charset=utf-8"

Access = Literal["open", "page", "api"]
"""Who is answered: everybody (the kubelet's probes; see `Request.trusted`), everybody unless pages
are protected too (scrapers), or only authenticated callers (those who read what jobs do)."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a route may look at: the query's parameters and the two Accept headers.

    `trusted` means that the reader may see what pages contain. It is not so on open paths where
    pages are protected and no credentials were shown.
    """

    query: Mapping[str, Sequence[str]]
    accept: str
    accept_encoding: str
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: whole (`bytes`) or in pieces, which then are sent as they come.

    `compress` allows the server to compress the pieces; whole bodies are sent as they are.
    """

    status: int
    content_type: str
    body: bytes | Iterator[bytes]
    headers: tuple[tuple[str, str], ...] = ()
    compress: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """How a path is answered; answers of `heavy` ones are long and few may be sent at once."""

    answer: Callable[[Request], Response]
    access: Access = "api"
    heavy: bool = False


def sentence(status: int, text: str) -> Response:
    """Answer with one sentence of our own; text of a request is never part of it."""
    return Response(status, TEXT_TYPE, f"{text}\n".encode())
