"""Whether a library that only other processes import is there, without importing it here."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def skip_without(package: str, reason: str) -> None:
    """Skip a test, or at the top of a module all of its tests, where a package is missing.

    Importing torch takes seconds of a core, in each of the test processes that collect.

    Args:
        package: the package that must be installed.
        reason: what needs it.
    """
    if find_spec(package) is None:
        pytest.skip(f"needs {package}: {reason}", allow_module_level=True)
