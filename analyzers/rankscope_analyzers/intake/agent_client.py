"""Fetches one response of one agent, or of a watch, bounded in time and size."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, RemoteDisconnected
from ssl import SSLError
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request

from rankscope_agent.contract import api_version, untrusted_json
from rankscope_analyzers.intake.agent_timeouts import AgentTimeouts
from rankscope_analyzers.intake.credentials import NONE, CredentialsError, Entry
from rankscope_analyzers.intake.deadline import Deadline

TIMEOUT_SECONDS = 10.0
"""Seconds. An agent on the same cluster answers in milliseconds; a dead node must not delay
others."""

WHOLE_ANSWER_SECONDS = 20.0
"""Seconds for the whole response: one that arrives a byte at a time would delay others just as
well."""

MAXIMUM_ANSWER_BYTES = 64 << 20
"""Bytes: three thousand pods with all that is kept of them have some 10 MB of JSON."""

PIECE_BYTES = 1 << 16

HEALTH = ("/healthz", "/readyz")
"""Pages whose text says with status 503 what is not as it should be."""

UNAUTHORIZED = 401
FORBIDDEN = 403

REFUSALS = {
    UNAUTHORIZED: ": give --token-file, or --cert-file and --key-file",
    FORBIDDEN: (
        ": this agent gives step records only to clients with a token, and was started without any:"
        " start it with --web.token-file FILE, or with --web.listen-address=localhost:9877 for this"
        " node only"
    ),
}
"""What to do about an agent that refuses access."""

NO_TLS = frozenset(("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"))
"""OpenSSL's reasons if a server answers a handshake with plain text, by version."""

GZIP = 31
"""What zlib calls a gzip header around its largest window."""


class AgentError(Exception):
    """An agent sends no usable response; the message says which and why."""


class StatusError(AgentError):
    """An agent refuses a request, with this HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent at an address, or a watch, whose page is served and fetched like one of an agent.

    Args:
        url: its address; without a scheme, that of `entry`, http or https.
        entry: credentials.
        node: the node that it is on, if known from an API server; otherwise empty, and the agent
            reports it.
        timeouts: what is known of agents that were late; None if none is queried again.
        role: what answers there, for messages.
    """

    url: str
    entry: Entry = NONE
    node: str = ""
    timeouts: AgentTimeouts | None = None
    role: Literal["agent", "watch"] = "agent"

    @property
    def base(self) -> str:
        """Return the address with its scheme and without a trailing slash.

        Raises:
            AgentError: it is not an http address.
        """
        url = self.url if "://" in self.url else f"{self.entry.scheme}://{self.url}"
        base = url.rstrip("/")
        if urlsplit(base).scheme not in {"http", "https"}:
            raise AgentError(f"{self.url} is not the http address of {self._one}")
        return base

    def json(
        self, path: str, most_bytes: int = MAXIMUM_ANSWER_BYTES, seconds: float | None = None
    ) -> dict[str, Any]:
        """Return the JSON object at a path; that of /healthz is accepted with status 503 as well.

        Args:
            path: with its query.
            most_bytes: of it.
            seconds: for the whole response; default: `WHOLE_ANSWER_SECONDS`.

        Raises:
            AgentError: there is none.
        """
        try:
            document = untrusted_json.read(self.body(path, most_bytes, seconds))
        except ValueError as error:
            raise self._stranger(error) from None
        if not isinstance(document, dict):
            raise self._stranger("no object")
        return document

    def text(self, path: str) -> str:
        """Return the text at a path.

        Raises:
            AgentError: there is none.
        """
        return self.body(path, MAXIMUM_ANSWER_BYTES).decode("utf-8", "replace")

    def packed(self, path: str) -> bytes:
        """Return the text at a path, compressed by gzip, which takes a tenth of the memory.

        Raises:
            AgentError: there is none.
        """
        return self._fetched(path, MAXIMUM_ANSWER_BYTES, None).as_packed()

    def body(self, path: str, most_bytes: int, seconds: float | None = None) -> bytes:
        """Return the bytes at a path.

        Args:
            path: with its query.
            most_bytes: of them.
            seconds: for the whole response; default: `WHOLE_ANSWER_SECONDS`.

        Raises:
            AgentError: there are none, or more than allowed, or they take too long, or they are of
                a version that cannot be read.
        """
        return self._fetched(path, most_bytes, seconds).as_plain()

    def _fetched(self, path: str, most_bytes: int, seconds: float | None) -> _Body:
        deadline = self._deadline(path, WHOLE_ANSWER_SECONDS if seconds is None else seconds)
        try:
            return self._answer(path, most_bytes, deadline)
        except CredentialsError as error:
            raise AgentError(str(error)) from None
        except (OSError, HTTPException) as error:
            if self.timeouts is not None:
                self.timeouts.failed(self.url, _shortened_path(path), deadline)
            reason = error.reason if isinstance(error, URLError) else error
            why = f"cannot be reached: {reason}"
            if isinstance(reason, TimeoutError):
                why = deadline.missed(reason)
            raise AgentError(f"{self.role} {self.url} {why}{self._other_address(reason)}") from None
        except (EOFError, zlib.error) as error:
            raise self._stranger(repr(error)) from None

    def _other_address(self, reason: object) -> str:
        """Return what to do if the failure is that of another port, or of the other scheme."""
        if isinstance(reason, ConnectionRefusedError):
            return self._nobody_listens()
        if self.base.startswith("https:"):
            silent = isinstance(reason, TimeoutError) and "handshake" in str(reason)
            plain = isinstance(reason, SSLError) and reason.reason in NO_TLS
            return ": if it serves plain http, give http://" if silent or plain else ""
        closed = isinstance(reason, RemoteDisconnected)
        return ": if it serves TLS, give https:// or --ca-file" if closed else ""

    def _nobody_listens(self) -> str:
        if urlsplit(self.base).port is None:
            port = 443 if self.base.startswith("https:") else 80
            return f": port {port} was asked, because the address names none"
        program = "rankscope-agent" if self.role == "agent" else "rankscope watch"
        return f": start {program} there, or give the port that it listens on"

    def _deadline(self, path: str, seconds: float) -> Deadline:
        # A response that takes an agent long is also slow to begin: a busy agent opens all rings
        # before it sends the first byte of their steps.
        silence = max(TIMEOUT_SECONDS, seconds / 2)
        if self.timeouts is None:
            return Deadline(seconds, silence)
        return self.timeouts.deadline(self.url, _shortened_path(path), seconds, silence)

    def _answer(self, path: str, most_bytes: int, deadline: Deadline) -> _Body:
        request = Request(f"{self.base}{path}", headers={"Accept-Encoding": "gzip"})  # noqa: S310 - the scheme is checked
        try:
            with self.entry.open(request, deadline) as answer:
                self._check_version(answer)
                return self._read(answer, path, most_bytes)
        except HTTPError as error:
            with error:
                if error.code != 503 or path not in HEALTH:
                    message = f"{self.url}{path} answers {error.code}{self._refusal(error.code)}"
                    raise StatusError(message, error.code) from None
                return _Body([error.read(most_bytes)])

    def _refusal(self, code: int) -> str:
        if code == UNAUTHORIZED and self.entry.shows:
            return f": the token of {self.entry.token_file} was refused"
        return REFUSALS.get(code, "")

    def _check_version(self, answer: HTTPResponse) -> None:
        try:
            theirs = api_version.stated_version(answer.headers[api_version.HEADER])
        except ValueError as error:
            raise self._stranger(error) from None
        if why := api_version.mismatch(theirs):
            raise AgentError(f"{self.role} {self.url} {why}")

    def _read(self, answer: HTTPResponse, path: str, most_bytes: int) -> _Body:
        packed = answer.headers["Content-Encoding"] == "gzip"
        unpack = zlib.decompressobj(wbits=GZIP) if packed else None
        body = _Body([], [] if packed else None)
        length = 0
        while piece := answer.read1(PIECE_BYTES):
            plain = unpack.decompress(piece, most_bytes + 1 - length) if unpack else piece
            body.add(plain, piece)
            length += len(plain)
            if length > most_bytes:
                size = f"{most_bytes >> 20} MiB"
                raise AgentError(f"{self.url}{path} answers more than {size}: is it {self._one}?")
        # `read1` returns the same at the end of an answer and of a connection.
        if answer.length or (unpack is not None and not unpack.eof):
            raise AgentError(f"{self.url}{path}: the connection ended in the middle of the answer")
        return body

    @property
    def _one(self) -> str:
        return "an agent" if self.role == "agent" else "a watch"

    def _stranger(self, why: object) -> AgentError:
        return AgentError(f"{self.url} does not answer like a rankscope {self.role}: {why}")


@dataclass(frozen=True, slots=True)
class _Body:
    """The body of an agent's response, in pieces: unpacked, and as received if compressed."""

    plain: list[bytes]
    packed: list[bytes] | None = None

    def add(self, plain: bytes, came: bytes) -> None:
        self.plain.append(plain)
        if self.packed is not None:
            self.packed.append(came)

    def as_plain(self) -> bytes:
        return b"".join(self.plain)

    def as_packed(self) -> bytes:
        if self.packed is None:
            return gzip.compress(self.as_plain(), compresslevel=1)
        return b"".join(self.packed)


def _shortened_path(path: str) -> str:
    return path.partition("?")[0]
