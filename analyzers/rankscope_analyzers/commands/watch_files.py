"""Files and directories that `rankscope watch` writes, checked before anything is read."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope_analyzers.command import InputError

FILES = {"state": "--state", "incident_log": "--incident-log"}
DIRECTORIES = {"captures": "--captures", "records": "--records"}
"""Options by the names of their values. Directories are created when they are needed."""


def check(options: argparse.Namespace) -> None:
    """Refuse paths that can never be written, or whose replacement would move something else away.

    Raises:
        InputError: a path is of another kind than its option takes, or its directory is missing.
    """
    for name, option in FILES.items():
        if (path := getattr(options, name)) is not None:
            _check_file(path, option)
    for name, option in DIRECTORIES.items():
        if (path := getattr(options, name)) is not None:
            _check_directory(path, option)


def _check_file(path: Path, option: str) -> None:
    try:
        exists, is_file, has_parent = path.exists(), path.is_file(), path.parent.is_dir()
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror}") from None
    if exists and not is_file:
        raise InputError(f"{option} takes a file: {path} is {_kind(path)}")
    if not has_parent:
        raise InputError(f"{option} {path}: there is no directory {path.parent}")


def _check_directory(path: Path, option: str) -> None:
    try:
        is_other = path.exists() and not path.is_dir()
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror}") from None
    if is_other:
        raise InputError(f"{option} takes a directory: {path} is none")


def _kind(path: Path) -> str:
    return "a directory" if path.is_dir() else "no regular file"
