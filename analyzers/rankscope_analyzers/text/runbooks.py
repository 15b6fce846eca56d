"""The runbooks that findings name and the pages of checks, from a wheel or a checkout."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PAGES = ("preflight", "verify")
"""Pages with a section for each check, to which the JSON of these commands refers."""


def folder() -> Path | None:
    """Return the directory of the runbooks, None in an installation without them."""
    return _directory("runbooks", "docs/runbooks")


def _directory(installed: str, in_checkout: str) -> Path | None:
    spec = importlib.util.find_spec("rankscope_analyzers")
    package = Path(spec.origin).parent if spec and spec.origin else Path()
    # An installed wheel carries them inside the package; a checkout has them under docs.
    for candidate in (package / installed, package.parent.parent / in_checkout):
        if candidate.is_dir():
            return candidate
    return None


def names() -> list[str]:
    """Return the names of all, then those of pages; empty in an installation without runbooks."""
    directory = folder()
    return [*sorted(file.stem for file in directory.glob("*.md")), *PAGES] if directory else []


def command(name: str) -> str:
    """Return what prints a runbook wherever Rankscope is installed; empty for none."""
    return f"`rankscope runbook {name}`" if name else ""


def path(name: str) -> str:
    """Return a runbook's path in the repository, for reports and labels; empty for none."""
    return f"docs/runbooks/{name}.md" if name else ""


def text(name: str) -> str | None:
    """Return the Markdown of a runbook or page, None if there is no such runbook.

    Args:
        name: of the alert that it is for, or of a page; names with anything but letters and digits
            have none.
    """
    directory = _directory("pages", "docs") if name in PAGES else folder()
    if directory is None or not (name.isascii() and name.isalnum()):
        return None
    try:
        return (directory / f"{name}.md").read_text(encoding="utf-8")
    except OSError:
        return None


def sections(markdown: str) -> dict[str, str]:
    """Return the sections of a text by the anchors that links give them."""
    _, *found = f"\n{markdown}".split("\n## ")
    return {one.partition("\n")[0].lower().replace(" ", "-"): f"## {one}\n" for one in found}
