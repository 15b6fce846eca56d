"""Certificates for tests, made by openssl: an authority, and whom it signs for."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from servers import require_server


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates; all files lie in one folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._openssl = require_server("openssl")
        self._folder = folder
        self.cert, self._key = folder / f"{name}.crt", folder / f"{name}.key"
        self._run(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", self._key, "-out", self.cert, "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "keyUsage=critical,keyCertSign"),
        )

    def sign(self, name: str, names: str = "DNS:rankscope-agent,IP:127.0.0.1") -> Pair:
        """Return a certificate for these alternative names."""
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        self._run(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", pair.key, "-out", request, "-subj", f"/CN={name}"),
        )
        self._run(
            *("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self._key),
            *("-CAcreateserial", "-out", pair.cert, "-days", "1", "-extfile", extensions),
        )
        return pair

    def _run(self, *arguments: object) -> None:
        done = subprocess.run(
            [self._openssl, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
