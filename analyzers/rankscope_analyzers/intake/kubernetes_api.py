"""Queries the API server for JSON, through Kubernetes' own client.

Raw, because its typed models refuse objects that lack required fields, and take more memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.intake.cluster import (
    CURRENT,
    ClusterAccess,
    configured_client,
    impatient,
)
from rankscope_analyzers.text.sanitize import visible

LONGEST_LINE = 4 << 20
"""Bytes of one event of a watch: etcd holds objects of 1.5 MiB."""

LARGEST_ANSWER = 64 << 20
PIECE = 1 << 16
LONGEST_MESSAGE = 300

CONNECTIONS = 32
"""Connections that are kept open: one for each kind of object that is followed."""

OK = 200


class NoAnswerError(Exception):
    """The API server cannot be reached, or its response is invalid; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the API server.

    Args:
        status: of HTTP.
        body: the object, empty if it is not one.
    """

    status: int
    body: Mapping[str, Any]

    @property
    def message(self) -> str:
        """Return the message of a refusal, on one line."""
        return visible(str(self.body.get("message", "")), LONGEST_MESSAGE)


class Api(Protocol):
    """Reads and writes JSON at paths of the API server. All methods raise NoAnswerError."""

    def get(self, path: str, query: Mapping[str, str], seconds: float) -> Answer:
        """Return the response to a request, which may take `seconds` in all."""
        ...

    def put(self, path: str, body: Mapping[str, Any], seconds: float) -> Answer:
        """Replace an object; return the response."""
        ...

    def lines(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[Answer]:
        """Yield the events of a watch as they arrive; one with another status is a refusal."""
        ...


class KubernetesApi:
    """The API server in the kubeconfig or of the pod's service account.

    Args:
        access: which cluster.

    Raises:
        ClusterError: the client is not installed, or finds no cluster.
    """

    def __init__(self, access: ClusterAccess = CURRENT) -> None:
        client = configured_client("the API server is asked through", "to ask", access)
        self._client: Any = impatient(client)
        pools = self._client.rest_client.pool_manager
        pools.connection_pool_kw["maxsize"] = CONNECTIONS

    def get(self, path: str, query: Mapping[str, str], seconds: float) -> Answer:
        """Return the response to a request.

        Raises:
            NoAnswerError: there is none, or it is not JSON.
        """
        response = self._asked("GET", path, query, seconds)
        return Answer(int(response.status), _object(_whole(response)))

    def put(self, path: str, body: Mapping[str, Any], seconds: float) -> Answer:
        """Replace an object; return the response.

        Raises:
            NoAnswerError: there is none; the object may have been replaced or not.
        """
        response = self._asked("PUT", path, {}, seconds, dict(body))
        return Answer(int(response.status), _object(_whole(response)))

    def lines(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[Answer]:
        """Yield the events of a watch as they arrive, until the server ends it.

        Raises:
            NoAnswerError: the connection breaks, or what arrives is not JSON.
        """
        response = self._asked("GET", path, query, seconds)
        status = int(response.status)
        if status != OK:
            yield Answer(status, _object(_whole(response)))
            return
        try:
            for line in _lines(response):
                yield Answer(status, _object(line))
        finally:
            response.close()

    def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        seconds: float,
        body: Any = None,
    ) -> Any:
        """Return urllib3's response, of which nothing is read yet."""
        from kubernetes.client.exceptions import ApiException
        from kubernetes.config.config_exception import ConfigException
        from urllib3.exceptions import HTTPError

        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            request = self._client.param_serialize(
                method=method,
                resource_path=path,
                query_params=list(query.items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            return self._client.call_api(*request, _request_timeout=seconds).response
        except (ApiException, OSError, HTTPError, ValueError, ConfigException) as error:
            raise NoAnswerError(visible(str(error), LONGEST_MESSAGE)) from None


def _whole(response: Any) -> bytes:
    found = bytearray()
    try:
        for piece in _pieces(response):
            found += piece
            if len(found) > LARGEST_ANSWER:
                raise NoAnswerError(f"the answer has more than {LARGEST_ANSWER} bytes")
    except NoAnswerError:
        response.close()  # the rest of it would be taken for the next response
        raise
    return bytes(found)


def _lines(response: Any) -> Iterator[bytes]:
    """Yield lines.

    Raises:
        NoAnswerError: one is too long, or cut short.
    """
    left = b""
    for piece in _pieces(response):
        *whole, left = (left + piece).split(b"\n")
        if len(left) > LONGEST_LINE:
            raise NoAnswerError(f"an event has more than {LONGEST_LINE} bytes")
        yield from (line for line in whole if line.strip())
    if left.strip():
        raise NoAnswerError(f"the answer ends in the middle of an event: {left[:40]!a}")


def _pieces(response: Any) -> Iterator[bytes]:
    from urllib3.exceptions import HTTPError

    try:
        while piece := response.read1(PIECE):
            yield piece
    except (OSError, HTTPError, ValueError) as error:
        raise NoAnswerError(visible(str(error), LONGEST_MESSAGE)) from None


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        found = untrusted_json.read(text)
    except ValueError as error:
        raise NoAnswerError(f"its response is not JSON: {error}") from None
    return found if isinstance(found, Mapping) else {}
