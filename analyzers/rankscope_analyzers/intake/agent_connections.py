"""Sends one request to many agents at once, over persistent connections; slow ones delay no other.

Each agent has at most one open request. A look waits for agents that answered in time before; the
others continue meanwhile, and their responses are part of a later look.
"""

from __future__ import annotations

import asyncio
import ssl
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from rankscope_agent.contract import api_version
from rankscope_analyzers.intake.agent_client import (
    GZIP,
    REFUSALS,
    Agent,
    AgentError,
    StatusError,
)
from rankscope_analyzers.intake.credentials import Entry

ANSWER_SECONDS = 20.0
"""For one response: one that arrives a byte at a time would occupy a connection for ever."""

LATE_SECONDS = 1.0
"""An agent whose response took longer is not waited for at the next look."""

CLOSING_ROUNDS = 4
"""Rounds of the event loop after which abandoned sockets are closed, including those under TLS."""

MOST_HEAD_BYTES = 1 << 16
MOST_HEADERS = 100
PIECE_BYTES = 1 << 18
BUSY = 503
OK = 200


@dataclass(frozen=True, slots=True)
class Question:
    """A request to an agent.

    Args:
        path: with its query.
        accept: media types, empty for any.
        most_bytes: of the response, unpacked.
    """

    path: str
    accept: str = ""
    most_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """An agent's response: media type without its parameters, and the unpacked body."""

    content_type: str
    body: bytes


Answers = Sequence[Answer | AgentError]


class AgentConnections:
    """Connections to many agents; used by one thread.

    Args:
        entry: credentials.
    """

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._loop = asyncio.new_event_loop()
        self._open: dict[str, _Connection] = {}
        self._tasks: dict[str, asyncio.Task[Answers]] = {}
        self._late: set[str] = set()

    @property
    def asked(self) -> frozenset[str]:
        """Return the agents whose responses have not arrived yet."""
        return frozenset(self._tasks)

    @property
    def answered(self) -> frozenset[str]:
        """Return those of them that have answered since; `collect` returns their responses."""
        return frozenset(url for url, task in self._tasks.items() if task.done())

    @property
    def awaited(self) -> frozenset[str]:
        """Return those of them that are not late."""
        return frozenset(self._tasks.keys() - self._late)

    def ask(
        self, questions: Mapping[str, Sequence[Question]], seconds: float
    ) -> Mapping[str, Answers]:
        """Query agents; return the responses that arrive by then, to earlier requests as well.

        Args:
            questions: by address; the next one is sent to an agent when the one before was
                answered, and none after one that failed. Agents with an open request are left
                alone.
            seconds: how long to wait for those that were not late before.

        Raises:
            CredentialsError: a file cannot be used.
        """
        head = self._head()
        context = self._entry.tls_context() if self._entry.scheme == "https" else None
        began = time.monotonic()
        for url, several in questions.items():
            if url not in self._tasks:
                asking = self._asking(url, several, head, context)
                self._tasks[url] = self._loop.create_task(asking)
        punctual = [task for url, task in self._tasks.items() if url not in self._late]
        self._run(punctual, began + seconds)
        answers = self.collect()
        self._late.update(self._tasks)
        return answers

    def collect(self) -> Mapping[str, Answers]:
        """Return the responses since this or `ask` was last called."""
        return {url: _result(url, self._tasks.pop(url)) for url in self.answered}

    def idle(self, seconds: float) -> None:
        """Wait for responses for some time."""
        self._loop.run_until_complete(asyncio.sleep(max(0.0, seconds)))

    def keep(self, urls: Sequence[str]) -> None:
        """Close the connections to all agents but these."""
        for url in {*self._open, *self._tasks}.difference(urls):
            self._late.discard(url)
            task = self._tasks.pop(url, None)
            if task is not None:
                task.cancel()
            if connection := self._open.pop(url, None):
                connection.close()

    def close(self) -> None:
        """Close all connections."""
        self.keep(())
        for _ in range(CLOSING_ROUNDS):
            self.idle(0.0)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _run(self, punctual: Sequence[asyncio.Task[Answers]], until: float) -> None:
        async def wait() -> None:
            if punctual:
                await asyncio.wait(punctual, timeout=max(0.0, until - time.monotonic()))
            else:
                await asyncio.sleep(0)

        self._loop.run_until_complete(wait())

    def _head(self) -> str:
        token = self._entry.token()
        return f"Authorization: Bearer {token}\r\n" if token else ""

    async def _asking(
        self, url: str, questions: Sequence[Question], head: str, context: ssl.SSLContext | None
    ) -> Answers:
        """Send requests to one agent, one after the other."""
        found: list[Answer | AgentError] = []
        began = time.monotonic()
        try:
            for question in questions:
                asking = self._answer(url, question, head, context)
                found.append(await asyncio.wait_for(asking, ANSWER_SECONDS))
        except (AgentError, OSError, ValueError, EOFError, zlib.error, TimeoutError,
                asyncio.TimeoutError, asyncio.LimitOverrunError) as error:  # fmt: skip
            self._close(url)
            found.append(_failure(url, error))
        if time.monotonic() - began <= LATE_SECONDS:
            self._late.discard(url)
        return found

    async def _answer(
        self, url: str, question: Question, head: str, context: ssl.SSLContext | None
    ) -> Answer:
        connection = self._open.get(url)
        if connection is not None and not connection.is_closing:
            try:
                return await connection.answer(question, head)
            except (ConnectionError, EOFError):  # it was closed meanwhile, as idle ones are
                self._close(url)
        connection = self._open[url] = await _connected(url, self._entry, context)
        return await connection.answer(question, head)

    def _close(self, url: str) -> None:
        if connection := self._open.pop(url, None):
            connection.close()


def _result(url: str, task: asyncio.Task[Answers]) -> Answers:
    """Return the result of a request, including any error that a response raised."""
    error = task.exception()
    return task.result() if error is None else [_failure(url, error)]


def _failure(url: str, error: BaseException) -> AgentError:
    if isinstance(error, AgentError):
        return error
    if isinstance(error, asyncio.TimeoutError | TimeoutError):
        return AgentError(f"agent {url} has not ended its answer in {ANSWER_SECONDS:g} s")
    if isinstance(error, OSError):
        return AgentError(f"agent {url} cannot be reached: {error}")
    return AgentError(f"{url} does not answer like a rankscope agent: {error!r}")


async def _connected(url: str, entry: Entry, context: ssl.SSLContext | None) -> _Connection:
    parts = urlsplit(Agent(url, entry).base)
    secure = context or (entry.tls_context() if parts.scheme == "https" else None)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if parts.scheme == "https":
        name = entry.server_name or host
        opening = asyncio.open_connection(
            host, port, limit=MOST_HEAD_BYTES, ssl=secure, server_hostname=name
        )
    else:
        opening = asyncio.open_connection(host, port, limit=MOST_HEAD_BYTES)
    reader, writer = await opening
    return _Connection(url, parts.netloc, parts.path, reader, writer)


class _Connection:
    """A connection that stays open from response to response."""

    def __init__(
        self,
        url: str,
        host: str,
        below: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._url, self._host, self._below = url, host, below
        self._reader, self._writer = reader, writer
        self.is_closing = False

    def close(self) -> None:
        """Close it without waiting until it is closed."""
        self.is_closing = True
        self._writer.transport.abort()  # TLS would wait for the agent's close_notify

    async def answer(self, question: Question, head: str) -> Answer:
        """Send a request, and read the whole response.

        Raises:
            AgentError: it is refused, too large, or of a version that cannot be read.
            OSError, EOFError, ValueError, asyncio.LimitOverrunError, zlib.error: it does not
                arrive, or is invalid.
        """
        accept = f"Accept: {question.accept}\r\n" if question.accept else ""
        self._writer.write(
            f"GET {self._below}{question.path} HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Accept-Encoding: gzip\r\n{accept}{head}\r\n".encode("ascii")
        )
        status, headers = await self._status()
        self.is_closing = headers.get("connection", "").lower() == "close"
        if status != OK and status != BUSY:
            self.is_closing = True
            why = REFUSALS.get(status, "")
            raise StatusError(f"{self._url} answers {status}{why}", status)
        self._check_version(headers)
        body = await self._body(headers, question.most_bytes)
        if status == BUSY:
            raise StatusError(f"{self._url} is busy", status)
        return Answer(headers.get("content-type", "").partition(";")[0].strip().lower(), body)

    async def _status(self) -> tuple[int, Mapping[str, str]]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit() or len(lines) > MOST_HEADERS:
            raise ValueError(f"its answer begins with {first[:80]!a}")
        pairs = (line.partition(":") for line in lines)
        return int(rest[:3]), {name.lower(): value.strip() for name, _, value in pairs}

    def _check_version(self, headers: Mapping[str, str]) -> None:
        theirs = api_version.stated_version(headers.get(api_version.HEADER.lower()))
        if why := api_version.mismatch(theirs):
            raise AgentError(f"agent {self._url} {why}")

    async def _body(self, headers: Mapping[str, str], most_bytes: int) -> bytes:
        packed = headers.get("content-encoding", "").lower() == "gzip"
        body = _Body(most_bytes, zlib.decompressobj(wbits=GZIP) if packed else None)
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := await self._chunk_size():
                await self._take(body, size)
                await self._reader.readexactly(2)
            await self._reader.readuntil(b"\r\n")
        elif "content-length" in headers:
            await self._take(body, int(headers["content-length"]))
        else:
            self.is_closing = True
            while piece := await self._reader.read(PIECE_BYTES):
                body.add(piece)
        return body.whole()

    async def _chunk_size(self) -> int:
        line = await self._reader.readuntil(b"\r\n")
        if len(line) > 2 + 8:
            raise ValueError("a piece of its answer is too long")
        return int(line, 16)

    async def _take(self, body: _Body, size: int) -> None:
        while size > 0:
            piece = await self._reader.readexactly(min(size, PIECE_BYTES))
            size -= len(piece)
            body.add(piece)


class _Body:
    """The unpacked pieces of a response, no more than allowed."""

    def __init__(self, most_bytes: int, unpack: zlib._Decompress | None) -> None:
        self._most = most_bytes
        self._unpack = unpack
        self._pieces: list[bytes] = []
        self._length = 0

    def add(self, piece: bytes) -> None:
        plain = piece
        if self._unpack is not None:
            plain = self._unpack.decompress(piece, self._most + 1 - self._length)
        self._pieces.append(plain)
        self._length += len(plain)
        if self._length > self._most:
            raise ValueError(f"its answer has more than {self._most >> 20} MiB")

    def whole(self) -> bytes:
        if self._unpack is not None and not self._unpack.eof:
            raise EOFError("its answer was cut off")
        return b"".join(self._pieces)
