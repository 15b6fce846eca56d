"""Kubernetes API client on the standard library: one list, one watch, raw JSON.

A client library would take tens of megabytes for two requests. Semantics:
https://kubernetes.io/docs/reference/using-api/api-concepts.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from rankscope_agent.contract import untrusted_json
from rankscope_agent.sources.pods.json_items import MAX_VALUE, JsonItems

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

CONNECT_SECONDS = 10.0
LIST_SECONDS = 60.0
"""Time without a byte of a list: the server's own limit for requests is a minute."""

SILENCE_SECONDS = 100.0
"""Time without a byte of a watch. Bookmarks arrive every minute, so longer silence means that the
other end has gone away without closing the connection."""

MAX_LIST = 256 << 20
"""Bytes of a list: 3,000 pods with full specs make 25 MB. They are processed one by one."""

MAX_EVENT = MAX_VALUE
"""Bytes of one event, which contains one pod."""

MAX_TOKEN = 65536


class ApiError(Exception):
    """The API server refused or failed.

    Args:
        code: HTTP status, also of an ERROR event; 0 if there was no HTTP answer at all.
        reason: one sentence that includes the server's answer.
        retry_after_seconds: how long it asks clients to wait; 0 if it does not.
    """

    def __init__(self, code: int, reason: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.code = code
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The address of the API server, and the credentials for it.

    Args:
        url: https://host:port, or http:// for a local proxy.
        service_account: directory with `token` and `ca.crt`; tokens are read for every request,
            because bound tokens are replaced about once an hour.
    """

    url: str
    service_account: Path = SERVICE_ACCOUNT

    def list_pods(self, node: str, take: Callable[[object], None]) -> Mapping[str, Any]:
        """Pass on the pods of a node one by one, from the server's cache; return the list's rest.

        Raises:
            ApiError: the server refuses, fails, or does not answer with a list.
            OSError: it cannot be reached.
        """
        # Version 0 lets the server answer from memory instead of from etcd by a quorum read.
        query = {"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"}
        with self._get("/api/v1/pods", query, LIST_SECONDS) as response:
            items = JsonItems(_bounded(response))
            try:
                for item in items:
                    take(item)
            except (ValueError, RecursionError) as error:
                raise ApiError(0, f"cannot read the list of pods: {error}") from None
        return items.rest

    @contextmanager
    def watch_pods(
        self, node: str, version: str, seconds: int
    ) -> Iterator[Iterator[Mapping[str, Any]]]:
        """Open a watch and yield its events until the server ends it.

        Args:
            node: the node of the pods.
            version: resource version after which events are wanted.
            seconds: time after which the server should end the watch.

        Raises:
            ApiError: the server refuses; code 410 if the version is too old, here or in an event.
            OSError: it cannot be reached, or is silent for longer than the interval of bookmarks.
        """
        query = {
            "fieldSelector": f"spec.nodeName={node}",
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        with self._get("/api/v1/pods", query, SILENCE_SECONDS) as response:
            yield _events(response)

    @contextmanager
    def _get(
        self, path: str, query: Mapping[str, str], silence_seconds: float
    ) -> Iterator[HTTPResponse]:
        connection = self._connect()
        try:
            connection.request("GET", f"{path}?{urlencode(query)}", headers=self._headers())
            if connection.sock is not None:
                connection.sock.settimeout(silence_seconds)
            response = connection.getresponse()
            if response.status != 200:
                raise _refusal(response)
            yield response
        except HTTPException as error:
            raise ApiError(0, f"{self.url} does not answer in HTTP: {error!r}") from None
        finally:
            connection.close()

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port, timeout=CONNECT_SECONDS)
        authority = self.service_account / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        return HTTPSConnection(host, parts.port, timeout=CONNECT_SECONDS, context=context)

    def _headers(self) -> Mapping[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "rankscope-agent"}
        try:
            token = (self.service_account / "token").read_text(encoding="ascii")[:MAX_TOKEN].strip()
        except (FileNotFoundError, NotADirectoryError):
            return headers
        except (OSError, ValueError) as error:
            raise ApiError(0, f"cannot read the service account's token: {error}") from None
        return {**headers, "Authorization": f"Bearer {token}"} if token else headers


def _bounded(response: HTTPResponse) -> Callable[[int], bytes]:
    """Return a reader for a list, which raises an error beyond `MAX_LIST`."""
    left = MAX_LIST

    def read(size: int) -> bytes:
        nonlocal left
        more = response.read1(size)
        left -= len(more)
        if left < 0:
            raise ApiError(0, f"the list of pods is larger than {MAX_LIST >> 20} MiB")
        return more

    return read


def _refusal(response: HTTPResponse) -> ApiError:
    """Describe a refusal, in the server's own words if it sends a Status."""
    body = response.read(65536)
    try:
        message = str(_document(body).get("message", ""))
    except ApiError:
        message = body[:200].decode("utf-8", "replace")
    wait = response.headers.get("Retry-After", "")
    seconds = float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 6 else 0.0
    text = f"the API server answers {response.status}: {message[:300]}"
    return ApiError(response.status, text, seconds)


def _events(response: HTTPResponse) -> Iterator[Mapping[str, Any]]:
    while line := response.readline(MAX_EVENT + 1):
        if len(line) > MAX_EVENT:
            raise ApiError(0, f"an event is larger than {MAX_EVENT >> 20} MiB")
        if not line.endswith(b"\n"):
            return  # the connection broke in mid-event: the next watch sends it in full
        if line.isspace():
            continue
        event = _document(line)
        if event.get("type") == "ERROR":
            status = event.get("object")
            status = status if isinstance(status, dict) else {}
            code = status.get("code")
            message = str(status.get("message", ""))[:300]
            text = f"the API server ends the watch: {message}"
            raise ApiError(code if isinstance(code, int) else 0, text)
        yield event


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        document = untrusted_json.read(body)
    except ValueError as error:
        raise ApiError(0, f"the API server's answer is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ApiError(0, f"the API server sent a JSON {type(document).__name__}, not an object")
    return document
