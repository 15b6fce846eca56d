"""The runbooks that findings name: found in an installed wheel as well as in a checkout."""

from __future__ import annotations

import importlib.util
from pathlib import Path, PurePosixPath


def folder() -> Path | None:
    """Return where the runbooks lie, None where an installation lacks them."""
    spec = importlib.util.find_spec("rankscope_analyzers")
    package = Path(spec.origin).parent if spec and spec.origin else Path()
    # An installed wheel carries them inside the package; a checkout has them under docs.
    for candidate in (package / "runbooks", package.parent.parent / "docs" / "runbooks"):
        if candidate.is_dir():
            return candidate
    return None


def title(runbook: str) -> str:
    """Return the name of a runbook: "RankscopeOomRepeated" of its path under docs/runbooks."""
    return PurePosixPath(runbook).stem


def text(runbook: str) -> str | None:
    """Return the Markdown of a runbook, None where there is no such runbook.

    Args:
        runbook: as findings name it; only its last part counts, so that it cannot leave the folder.
    """
    place = folder()
    if place is None or not runbook:
        return None
    try:
        return (place / f"{title(runbook)}.md").read_text(encoding="utf-8")
    except OSError:
        return None
