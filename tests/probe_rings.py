"""Rings that the probe opens."""

from __future__ import annotations

from pathlib import Path

import rankscope_probe


def open_ring(directory: Path) -> Path:
    """Make a small ring as the probe does, and let it go."""
    rankscope_probe._Ring(str(directory), "2.13.0+cpu", None, 0).close()
    (path,) = directory.glob("*.ring")
    return path
