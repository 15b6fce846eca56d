"""Fails tests that start a Python program: it takes seconds, and does not see a mutant."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

Program = str | bytes | os.PathLike[str] | Sequence[str | bytes | os.PathLike[str]]


def is_python(command: Program) -> bool:
    """Return True if a command starts an interpreter, or a script that is installed next to it."""
    program = command if isinstance(command, str | bytes | os.PathLike) else command[0]
    path = Path(os.fsdecode(program))
    return path.name.startswith("python") or path.parent == Path(sys.executable).parent


def refuse_python() -> None:
    """From now on, fail the test that starts such a program."""
    start = subprocess.Popen.__init__

    def refuse(process: subprocess.Popen[Any], args: Program, *rest: Any, **named: Any) -> None:
        if is_python(args):
            pytest.fail(f"starts a Python program: {args!r}")
        start(process, args, *rest, **named)

    subprocess.Popen.__init__ = refuse  # type: ignore[assignment,method-assign]
