"""Credentials for agents and Prometheus, and verification of their certificates."""

from __future__ import annotations

import argparse
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from http.client import HTTPConnection, HTTPMessage, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import IO, Any, cast
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    build_opener,
)

from rankscope_analyzers.intake.deadline import Deadline, TimedTlsSocket, bind, secured

MAX_TOKEN_BYTES = 65536
"""Longest token file: a token of Kubernetes has one or two thousand characters."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1


class CredentialsError(Exception):
    """A file of credentials cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """How a server is accessed.

    Args:
        token_file: its first line is sent as bearer token; read for each request, because tokens
            are replaced.
        ca_file: certificates of the authorities that may have signed the server's, None for the
            system's list.
        cert_file: our own certificate, for servers that request one.
        key_file: its key.
        server_name: the name that the server's certificate must have, if that is not the host of
            its address: agents are accessed by pod addresses, which are in no certificate.
    """

    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str = ""

    @property
    def scheme(self) -> str:
        """Return the scheme for addresses without one."""
        return "https" if self.ca_file or self.cert_file or self.server_name else "http"

    @property
    def shows(self) -> bool:
        """Return True if anything is sent that others could use."""
        return self.token_file is not None

    def open(self, request: Request, deadline: Deadline) -> HTTPResponse:
        """Send a request; a redirect is not followed, because it would take the token along.

        Args:
            request: to send.
            deadline: for the whole response, whose body the caller reads.

        Raises:
            CredentialsError: a file cannot be used.
            OSError: the server cannot be reached in time, or its certificate is invalid.
        """
        token = self.token()
        if token:
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        cast("Any", request).deadline = deadline
        return cast("HTTPResponse", _opener_of(self).open(request))

    def token(self) -> str:
        """Return the bearer token, empty if none is sent.

        Raises:
            CredentialsError: it cannot be read.
        """
        if self.token_file is None:
            return ""
        try:
            with self.token_file.open(encoding="ascii") as file:
                text = file.read(MAX_TOKEN_BYTES + 1)
        except (OSError, ValueError) as error:
            raise CredentialsError(f"the token cannot be read: {error}") from None
        if len(text) > MAX_TOKEN_BYTES:
            raise CredentialsError(f"{self.token_file} is longer than {MAX_TOKEN_BYTES} bytes")
        lines = text.split()
        if not lines or not _TOKEN.fullmatch(lines[0]):
            raise CredentialsError(f"{self.token_file} does not begin with a bearer token")
        return lines[0]

    def tls_context(self) -> ssl.SSLContext:
        """Return the settings for TLS, created again only if a file has changed.

        Raises:
            CredentialsError: a file cannot be used.
        """
        files = (self.ca_file, self.cert_file, self.key_file)
        try:
            seen = tuple(file and file.stat() for file in files)
            marks = tuple(s and (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in seen)
            return _context_of(files, marks)
        except (OSError, ValueError) as error:
            named = ", ".join(str(file) for file in files if file)
            raise CredentialsError(f"{named} cannot be used for TLS: {error}") from None


NONE = Entry()
"""For servers without access control."""

ENTRIES_KEPT = 8
"""Entries that a command uses at once: for agents, for Prometheus, for the API server."""

CONTEXTS_KEPT = 4
"""TLS contexts: a command uses one; a replaced certificate makes another."""


@lru_cache(CONTEXTS_KEPT)
def _context_of(
    files: tuple[Path | None, Path | None, Path | None], marks: tuple[object, ...]
) -> ssl.SSLContext:
    """Read certificates, which takes 20 ms: too long for each of thousands of requests.

    Args:
        files: of an authority, of our certificate and of its key.
        marks: values that change when one of these is replaced.

    Raises:
        OSError: a file cannot be used.
        ValueError: likewise.
    """
    authority, certificate, key = files
    context = ssl.create_default_context(cafile=authority)
    if certificate is not None:
        context.load_cert_chain(certificate, key, password=lambda: b"")
    context.sslsocket_class = TimedTlsSocket
    return context


@lru_cache(ENTRIES_KEPT)
def _opener_of(entry: Entry) -> OpenerDirector:
    """Return an opener for requests; creating one takes longer than a request over loopback."""
    return build_opener(
        _NoRedirect(), _PlainHandler(), _NamedHandler(entry.tls_context, entry.server_name)
    )


def _deadline_of(request: Request) -> Deadline:
    return cast("Deadline", cast("Any", request).deadline)


_UNUSED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For a constructor that would read all certificates of the system, for plain http too."""


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Follow no redirect; the response then is an error with its status."""


class _PlainConnection(HTTPConnection):
    """A connection that ends by a deadline."""

    def __init__(self, host: str, *, deadline: Deadline, **more: Any) -> None:
        super().__init__(host, **more)
        bind(self, deadline)


class _PlainHandler(HTTPHandler):
    def http_open(self, req: Request) -> HTTPResponse:
        """Open a connection with a deadline."""
        return self.do_open(cast("Any", partial(_PlainConnection, deadline=_deadline_of(req))), req)


class _NamedConnection(HTTPSConnection):
    """A connection that ends by a deadline, and checks the certificate for a given name."""

    def __init__(
        self, host: str, *, deadline: Deadline, named: str, secured: ssl.SSLContext, **more: Any
    ) -> None:
        super().__init__(host, context=secured, **more)
        bind(self, deadline)
        self._named = named
        self._secured = secured

    def connect(self) -> None:
        """Connect, and secure the connection."""
        HTTPConnection.connect(self)
        self.sock = secured(self.sock, self._secured, self._named or self.host)


class _NamedHandler(HTTPSHandler):
    def __init__(self, context: Callable[[], ssl.SSLContext], name: str) -> None:
        super().__init__(context=_UNUSED)
        self._secured = context
        self._name = name

    def https_open(self, req: Request) -> HTTPResponse:
        """Open a connection with a deadline."""
        connect = partial(
            _NamedConnection, deadline=_deadline_of(req), named=self._name, secured=self._secured()
        )
        return self.do_open(cast("Any", connect), req)


def entry_of(options: argparse.Namespace) -> Entry:
    """Return the credentials in the options.

    Raises:
        CredentialsError: a certificate without its key, or the other way round.
    """
    if (options.cert_file is None) != (options.key_file is None):
        raise CredentialsError("--cert-file and --key-file go together")
    return Entry(
        options.token_file,
        options.ca_file,
        options.cert_file,
        options.key_file,
        options.tls_server_name,
    )
