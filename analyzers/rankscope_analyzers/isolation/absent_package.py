"""Keeps a library from importing an optional package that is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(package: str) -> Iterator[None]:
    """Hide a package from imports until the block ends, unless it is imported already.

    A library that is imported in the block continues without the package afterwards.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # as the import system documents it
    try:
        yield
    finally:
        del sys.modules[package]
