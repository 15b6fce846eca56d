"""The runbooks that findings name, from an installed wheel or a checkout."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def folder() -> Path | None:
    """Return the directory of the runbooks, None in an installation without them."""
    spec = importlib.util.find_spec("rankscope_analyzers")
    package = Path(spec.origin).parent if spec and spec.origin else Path()
    # An installed wheel carries them inside the package; a checkout has them under docs.
    for candidate in (package / "runbooks", package.parent.parent / "docs" / "runbooks"):
        if candidate.is_dir():
            return candidate
    return None


def names() -> list[str]:
    """Return the names of all, empty in an installation without them."""
    directory = folder()
    return sorted(file.stem for file in directory.glob("*.md")) if directory else []


def command(name: str) -> str:
    """Return what prints a runbook wherever Rankscope is installed; empty for none."""
    return f"`rankscope runbook {name}`" if name else ""


def path(name: str) -> str:
    """Return a runbook's path in the repository, for reports and labels; empty for none."""
    return f"docs/runbooks/{name}.md" if name else ""


def text(name: str) -> str | None:
    """Return the Markdown of a runbook, None if there is no such runbook.

    Args:
        name: of the alert that it is for; names with anything but letters and digits have none.
    """
    directory = folder()
    if directory is None or not (name.isascii() and name.isalnum()):
        return None
    try:
        return (directory / f"{name}.md").read_text(encoding="utf-8")
    except OSError:
        return None
