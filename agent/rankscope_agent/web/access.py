"""Access control: compares a request's credentials with what settings and files require."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rankscope_agent.web.config_file import WebConfig, read_web_config
from rankscope_agent.web.credentials import (
    Passwords,
    TooManyGuessesError,
    is_known_token,
    read_tokens,
)
from rankscope_agent.web.routes import Access, Response, sentence
from rankscope_agent.web.tls import server_context, speaks_for
from rankscope_agent.web.watched_files import Watched

log = logging.getLogger(__name__)

NO_CREDENTIALS = (
    "This path shows what jobs do, and this agent has no credentials to check its readers by:"
    " start it with --web.token-file, with client certificates or basic_auth_users in"
    " --web.config.file, on a loopback address, or with --web.insecure-api."
)
NOT_SHOWN = "This path takes a bearer token, a password or a client certificate of this agent."
TOO_MANY_GUESSES = "A password of this address is still being compared; try again in a moment."


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """The access settings.

    Args:
        config_file: web configuration in the format of exporter-toolkit.
        token_file: bearer tokens, one per line.
        insecure_api: whether to answer everyone.
        protect_metrics: whether scrapers and readers of pages need credentials as well.
    """

    config_file: Path | None = None
    token_file: Path | None = None
    insecure_api: bool = False
    protect_metrics: bool = False


@dataclass(frozen=True, slots=True)
class Requester:
    """What a request shows about its sender.

    Args:
        authorization: the header of that name; empty without one.
        peer: the address that it comes from.
        certified: whether the client presented a verified certificate.
        loopback: whether the server listens on a loopback address.
    """

    authorization: str
    peer: str
    certified: bool
    loopback: bool


class Guard:
    """Access control of one server. Files are reread when they change.

    A token file that becomes unreadable admits no one, because that may be intended. A
    configuration or certificate that becomes invalid is an accident: the previous one stays in use.
    The same holds for a configuration that was emptied: what it protected stays protected until a
    restart.

    Raises:
        ValueError: a file is invalid; the text names it.
    """

    def __init__(self, settings: AccessSettings) -> None:
        self._settings = settings
        self._passwords = Passwords()
        self._problem = ""
        self._config = _watched_config(settings.config_file)
        tokens = settings.token_file
        self._tokens = Watched(lambda: read_tokens(tokens), (tokens,)) if tokens else None
        self._context = self._tls_of(self._config.last() if self._config else WebConfig())

    @property
    def secure(self) -> bool:
        """Return True if connections use TLS."""
        return self._context is not None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of every answer."""
        return self._config.last().headers if self._config else ()

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None if they do not use TLS."""
        config, context = self._config, self._context
        if config is None or context is None:
            return None
        try:
            settings = config.current().tls
            # TLS is not switched on or off while connections may arrive: that requires a restart.
            if settings is not None and settings != self._tls:
                context = self._context = self._tls_of(config.last()) or context
            return context.current()
        except ValueError as error:
            self._complain(error)
            return context.last()

    def admits(self, connection: ssl.SSLSocket) -> bool:
        """Return True if a client's certificate may connect."""
        tls = self._config.last().tls if self._config else None
        return tls is None or speaks_for(connection, tls.client_allowed_sans)

    def refusal(self, access: Access, requester: Requester) -> Response | None:
        """Return why a request is not answered on a path of some access; None if it is."""
        if access == "open":  # a file that hangs must not keep these from being answered
            return None
        users = self._users()
        demanded = bool(users) or self._tokens is not None or self._checks_certificates()
        if not self._needs_login(access, bool(users), demanded, requester.loopback):
            return None
        shown = requester.authorization
        if requester.certified or is_known_token(shown, self._known_tokens(shown)):
            return None
        try:
            if self._passwords.match(shown, users, requester.peer):
                return None
        except TooManyGuessesError:
            return replace(sentence(429, TOO_MANY_GUESSES), headers=(("Retry-After", "1"),))
        return _refused(bool(users)) if demanded else sentence(403, NO_CREDENTIALS)

    def closes_api(self, *, loopback: bool) -> bool:
        """Return True if no client is admitted to the API: there is nothing to check it by."""
        demanded = bool(self._users()) or self._tokens is not None or self._checks_certificates()
        return not demanded and self._needs_login("api", False, False, loopback)

    def shows_pages(self, requester: Requester) -> bool:
        """Return True if a reader of an open path may see the contents of pages.

        No file is read for readers without credentials, such as the kubelet's probes.
        """
        users = self._config.last().users if self._config else {}
        if not users and not self._settings.protect_metrics:
            return True
        if not requester.authorization and not requester.certified:
            return False
        return self.refusal("page", requester) is None

    def _users(self) -> Mapping[str, str]:
        if self._config is None:
            return {}
        try:
            return self._config.current().users
        except ValueError as error:
            self._complain(error)
            return self._config.last().users

    def _known_tokens(self, authorization: str) -> tuple[bytes, ...]:
        if self._tokens is None or not authorization:
            return ()
        try:
            return self._tokens.current()
        except ValueError as error:
            self._complain(error)
            return ()

    def _needs_login(self, access: Access, users: bool, demanded: bool, loopback: bool) -> bool:
        """Return True if a path requires credentials."""
        if access == "api":
            return not self._settings.insecure_api and (demanded or not loopback)
        return access == "page" and (users or self._settings.protect_metrics)

    def _checks_certificates(self) -> bool:
        tls = self._config.last().tls if self._config else None
        return tls is not None and tls.client_ca_file is not None

    def _tls_of(self, config: WebConfig) -> Watched[ssl.SSLContext] | None:
        settings = config.tls
        self._tls = settings
        if settings is None:
            return None
        return Watched(lambda: server_context(settings), settings.files)

    def _complain(self, error: ValueError) -> None:
        if str(error) != self._problem:
            self._problem = str(error)
            log.error("web access: %s", error)


class _Configuration:
    """Rereads a configuration; what was protected once stays protected."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = WebConfig()

    def read(self) -> WebConfig:
        """Read the file.

        Raises:
            ValueError: it is invalid, or lacks what it contained before.
        """
        config = read_web_config(self._path)
        kept = {
            "basic_auth_users": (self._before.users, config.users),
            "tls_server_config": (self._before.tls, config.tls),
        }
        lost = [name for name, (before, now) in kept.items() if before and not now]
        if lost:
            raise ValueError(f"{self._path} no longer has {lost}; going without requires a restart")
        self._before = config
        return config


def _watched_config(path: Path | None) -> Watched[WebConfig] | None:
    if path is None:
        return None
    config = Watched(_Configuration(path).read, (path,))
    if config.last().tls is None and not config.last().users:
        log.warning("web access: %s requires neither TLS nor passwords", path)
    return config


def _refused(passwords: bool) -> Response:
    kinds = ("Bearer", "Basic") if passwords else ("Bearer",)
    response = sentence(401, NOT_SHOWN)
    headers = tuple(("WWW-Authenticate", f'{kind} realm="rankscope"') for kind in kinds)
    return Response(response.status, response.content_type, response.body, headers)


OPEN = Guard(AccessSettings(insecure_api=True))
"""Answers everyone; for servers that have no API."""
