"""The real servers that some tests talk to: found, or a reason to skip or to fail."""

from __future__ import annotations

import os
import shutil
import socket

import pytest


def require_server(program: str) -> str:
    """Return the path of a server program.

    Where it is missing the test is skipped and says so, or fails if RANKSCOPE_REQUIRE_SERVERS is 1.
    """
    path = shutil.which(program)
    if path is not None:
        return path
    reason = f"{program} is not installed; on Debian `make test` as root installs it"
    if os.environ.get("RANKSCOPE_REQUIRE_SERVERS") == "1":
        pytest.fail(f"{reason}, and RANKSCOPE_REQUIRE_SERVERS=1 wants it", pytrace=False)
    pytest.skip(reason)


def free_port() -> int:
    """Return a loopback port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
