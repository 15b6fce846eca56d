"""`rankscope runbook`: the runbook that a verdict names, from this installation."""

from __future__ import annotations

import argparse
import sys

from rankscope_analyzers.command import InputError, alike
from rankscope_analyzers.text import runbooks

FAILURES: tuple[type[Exception], ...] = (InputError,)


def run(options: argparse.Namespace) -> int:
    """Print the runbook, or the names of all.

    Raises:
        InputError: there is none of that name.
    """
    known = runbooks.names()
    if not known:
        raise InputError("this installation has no runbooks")
    if options.name is None:
        sys.stdout.write("".join(f"{name}\n" for name in known))
        return 0
    name = options.name.rpartition("/")[2].removesuffix(".md")
    text = runbooks.text(name)
    if text is None:
        raise InputError(
            f"there is no runbook {name!r}{alike(name, known)}; without a name, all are listed"
        )
    sys.stdout.write(text)
    return 0
