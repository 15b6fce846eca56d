"""Keeps a library from importing a package that it uses where there is one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(package: str) -> Iterator[None]:
    """Let imports find no such package until the block ends; one that is imported stays.

    What is imported meanwhile goes on without it afterwards, too.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # as the import system documents it
    try:
        yield
    finally:
        del sys.modules[package]
