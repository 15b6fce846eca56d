"""The real servers and tools that some tests use: found, or a reason to skip or to fail."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

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


def require_tool(program: str) -> str:
    """Return the path of a program that a package of the test group brings, or of the system's."""
    beside = Path(sys.executable).with_name(program)
    return str(beside) if beside.exists() else require_server(program)
