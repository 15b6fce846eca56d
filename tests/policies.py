"""The policies of the manifests."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent / "daemonset"


def first(*path: str) -> dict:
    return next(yaml.safe_load_all(ROOT.joinpath(*path).read_text()))
