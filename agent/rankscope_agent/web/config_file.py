"""Reads a web configuration in the file format of Prometheus' exporter-toolkit.

Format: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md. What
this server does not support is rejected by name, never skipped: a reader who relies on a line to
protect them must not be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope_agent.web.credentials import check_users
from rankscope_agent.web.watched_files import read_bounded

CLIENT_AUTH_TYPES = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
"""The types that verify the client; the two others in Go request a certificate without verifying
it."""

VERSIONS = ("TLS12", "TLS13")

CIPHERS: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""OpenSSL's names for the TLS 1.2 suites that Go considers secure."""

HEADERS = (
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
)

_TOP = ("tls_server_config", "http_server_config", "basic_auth_users")
_TLS = (
    "cert_file",
    "key_file",
    "client_auth_type",
    "client_ca_file",
    "client_allowed_sans",
    "min_version",
    "max_version",
    "cipher_suites",
    "prefer_server_cipher_suites",
)
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,4096}")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The contents of `tls_server_config`; paths are absolute or relative to the file."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    client_auth_type: str = "NoClientCert"
    client_allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    ciphers: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """The files whose change requires a new TLS context."""
        files = (self.cert_file, self.key_file)
        return files if self.client_ca_file is None else (*files, self.client_ca_file)


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The contents of a file; without one no credentials are required."""

    tls: TlsSettings | None = None
    headers: tuple[tuple[str, str], ...] = ()
    users: Mapping[str, str] = field(default_factory=dict)


def read_web_config(path: Path) -> WebConfig:
    """Read a file.

    Raises:
        ValueError: it cannot be read, or contains something unsupported; the text names it.
    """
    text = read_bounded(path)
    try:
        import yaml
    except ImportError:
        raise ValueError(f"{path} requires PyYAML: pip install 'rankscope[agent]'") from None
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        # Only the position is shown: the line may contain a key.
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"{path} is not YAML{where}") from None
    try:
        return _web_config({} if document is None else document, path.parent)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _web_config(document: object, folder: Path) -> WebConfig:
    top = _mapping(document, "the file", _TOP)
    users = _mapping(top.get("basic_auth_users"), "basic_auth_users")
    if "basic_auth_users" in top and not users:
        raise ValueError("basic_auth_users is empty; to require no password, remove it")
    users = {str(name): str(hashed) for name, hashed in users.items()}
    check_users(users)
    http = _mapping(top.get("http_server_config"), "http_server_config", ("http2", "headers"))
    tls = top.get("tls_server_config")
    return WebConfig(
        tls=None if tls is None else _tls(_mapping(tls, "tls_server_config", _TLS), folder),
        headers=tuple(_headers(_mapping(http.get("headers"), "headers", HEADERS))),
        users=users,
    )


def _mapping(value: object, name: str, keys: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return a mapping, an empty one for None, after checking its keys."""
    found = {} if value is None else value
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not a mapping but a {type(found).__name__}")
    unknown = [str(key) for key in found if keys is not None and key not in keys]
    if unknown:
        raise ValueError(f"{name} has {unknown}, which is not supported; have {list(keys or ())}")
    return found


def _headers(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    for name, value in given.items():
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"header {name} is not a line of ASCII text")
    return list(given.items())


def _tls(given: Mapping[str, Any], folder: Path) -> TlsSettings:
    for name in ("cert_file", "key_file"):
        if not given.get(name):
            raise ValueError(f"tls_server_config lacks {name}")
    kind = _one_of(given, "client_auth_type", CLIENT_AUTH_TYPES)
    authority = _path(given, "client_ca_file", folder)
    if (kind == "NoClientCert") != (authority is None):
        raise ValueError(f"client_auth_type {kind} and client_ca_file do not go together")
    sans = _texts(given, "client_allowed_sans")
    if sans and kind != "RequireAndVerifyClientCert":
        raise ValueError("client_allowed_sans requires client_auth_type RequireAndVerifyClientCert")
    least, most = (
        _one_of(given, "min_version", VERSIONS),
        _one_of(given, "max_version", VERSIONS[::-1]),
    )
    if least > most:
        raise ValueError(f"min_version {least} is above max_version {most}")
    return TlsSettings(
        cert_file=folder / str(given["cert_file"]),
        key_file=folder / str(given["key_file"]),
        client_ca_file=authority,
        client_auth_type=kind,
        client_allowed_sans=sans,
        min_version=least,
        max_version=most,
        ciphers=tuple(_ciphers(_texts(given, "cipher_suites"))),
    )


def _one_of(given: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    """Return a choice; the first known one if none is given."""
    value = given.get(name) or known[0]
    if value not in known:
        raise ValueError(f"{name} {value!r} is not supported; have {', '.join(known)}")
    return str(value)


def _path(given: Mapping[str, Any], name: str, folder: Path) -> Path | None:
    return folder / str(given[name]) if given.get(name) else None


def _texts(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = given.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} is not a list of texts")
    return tuple(values)


def _ciphers(names: tuple[str, ...]) -> list[str]:
    # TLS 1.3 suites are not selected individually, neither here nor in Go.
    chosen = [name for name in names if not re.fullmatch(r"TLS_(AES|CHACHA20)_[A-Z0-9_]+", name)]
    unknown = [name for name in chosen if name not in CIPHERS]
    if unknown:
        raise ValueError(f"cipher_suites {unknown} are not supported; have {list(CIPHERS)}")
    return [CIPHERS[name] for name in chosen]
