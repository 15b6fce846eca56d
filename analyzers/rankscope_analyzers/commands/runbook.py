"""`rankscope runbook`: the runbook that a verdict names, or a check's section of a page."""

from __future__ import annotations

import argparse
import sys

from rankscope_analyzers.command import InputError, alike
from rankscope_analyzers.text import runbooks

FAILURES: tuple[type[Exception], ...] = (InputError,)


def run(options: argparse.Namespace) -> int:
    """Print the runbook or one section of it, or the names of all.

    Raises:
        InputError: there is none of that name.
    """
    known = runbooks.names()
    if not known:
        raise InputError("this installation has no runbooks")
    if options.name is None:
        sys.stdout.write("".join(f"{name}\n" for name in known))
        return 0
    path, _, section = options.name.partition("#")
    name = path.rpartition("/")[2].removesuffix(".md")
    text = runbooks.text(name) or _of_class(name)
    if text is None:
        raise InputError(
            f"there is no runbook {name!r}{alike(name, known)}; without a name, all are listed"
        )
    sys.stdout.write(_section(name, text, section) if section else text)
    return 0


def _of_class(name: str) -> str | None:
    """Return the runbook of a class of verdicts, such as gpu_compute."""
    from rankscope_analyzers.findings.advice import ADVICE  # for these alone

    return runbooks.text(ADVICE[name].runbook) if name in ADVICE else None


def _section(name: str, text: str, section: str) -> str:
    sections = runbooks.sections(text)
    if section not in sections:
        raise InputError(f"{name} has no section {section!r}{alike(section, sections)}")
    return sections[section].rstrip("\n") + "\n"
