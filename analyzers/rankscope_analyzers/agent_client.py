"""Asks one agent for one of its answers; bounded in time and size."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

TIMEOUT_SECONDS = 10.0
"""An agent on the same cluster answers in milliseconds; a dead node must not hold others up."""

MAXIMUM_ANSWER_BYTES = 64 << 20
"""Three thousand pods with all that is kept of them have some 10 MB of JSON."""


class AgentError(Exception):
    """An agent gives no usable answer; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent at an address; `http://` is assumed."""

    url: str

    @property
    def base(self) -> str:
        """The address with its scheme and without a trailing slash.

        Raises:
            AgentError: it is no http address.
        """
        base = (self.url if "://" in self.url else f"http://{self.url}").rstrip("/")
        if urlsplit(base).scheme not in {"http", "https"}:
            raise AgentError(f"{self.url} is not the http address of an agent")
        return base

    def json(self, path: str) -> dict[str, Any]:
        """Return the JSON object behind a path; one of /healthz comes with status 503 as well.

        Raises:
            AgentError: there is none.
        """
        try:
            document = json.loads(self.text(path))
        except ValueError as error:
            raise AgentError(
                f"{self.url} does not answer like a rankscope agent: {error}"
            ) from None
        if not isinstance(document, dict):
            raise AgentError(f"{self.url} does not answer like a rankscope agent: no object")
        return document

    def text(self, path: str) -> str:
        """Return the text behind a path.

        Raises:
            AgentError: there is none.
        """
        request = Request(f"{self.base}{path}")  # noqa: S310 - the scheme is checked
        try:
            with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
                body: bytes = answer.read(MAXIMUM_ANSWER_BYTES + 1)
        except HTTPError as error:
            if error.code != 503:
                raise AgentError(f"{self.url}{path} answers {error.code}") from None
            body = error.read(MAXIMUM_ANSWER_BYTES + 1)
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise AgentError(f"agent {self.url} cannot be reached: {reason}") from None
        if len(body) > MAXIMUM_ANSWER_BYTES:
            raise AgentError(f"{self.url}{path} answers more than {MAXIMUM_ANSWER_BYTES >> 20} MiB")
        return body.decode("utf-8", "replace")
