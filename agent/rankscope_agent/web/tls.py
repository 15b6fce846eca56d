"""Sets up TLS from a web configuration, and reads the identity in a client's certificate."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from rankscope_agent.web.config_file import TlsSettings

_VERIFY: Mapping[str, ssl.VerifyMode] = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS: Mapping[str, ssl.TLSVersion] = {
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_SAN_KINDS = ("DNS", "IP Address", "email", "URI")


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Create the context of a server.

    Raises:
        ValueError: a file is invalid; the text names the files.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.maximum_version = _VERSIONS[settings.max_version]
    try:
        if settings.ciphers:
            context.set_ciphers(":".join(settings.ciphers))
        # A password is never requested on a terminal: an encrypted key is rejected instead.
        context.load_cert_chain(settings.cert_file, settings.key_file, password=lambda: b"")
        if settings.client_ca_file is not None:
            context.load_verify_locations(settings.client_ca_file)
    except (OSError, ValueError) as error:
        names = ", ".join(map(str, settings.files))
        raise ValueError(f"{names} cannot be used for TLS: {error}") from None
    context.verify_mode = _VERIFY[settings.client_auth_type]
    return context


def is_certified(connection: ssl.SSLSocket) -> bool:
    """Return True if the client presented a certificate signed by its authority."""
    return bool(connection.getpeercert())


def speaks_for(connection: ssl.SSLSocket, allowed: tuple[str, ...]) -> bool:
    """Return True if a client's certificate names an allowed subject; without a list, any may."""
    certificate: Mapping[str, Any] = connection.getpeercert() or {}
    names = [
        str(name) for kind, name in certificate.get("subjectAltName", ()) if kind in _SAN_KINDS
    ]
    return not allowed or any(name in allowed for name in names)
