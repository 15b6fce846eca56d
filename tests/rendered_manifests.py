"""What kubectl makes of folders under daemonset/."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from servers import require_tool

ROOT = Path(__file__).parent.parent / "daemonset"
PATIENCE_SECONDS = 120

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # dashboards are long


def kustomize(folder: Path) -> str:
    """Render a folder; kubectl ends before it would have to collect any garbage."""
    done = subprocess.run(
        [require_tool("kubectl"), "kustomize", str(folder)],
        env={**os.environ, "GOGC": "off"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def parsed(text: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(text, LOADER))


def combined(place: Path, components: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects of the base with components, by a kustomization in an empty folder."""
    base = os.path.relpath(ROOT, place)
    lines = [f"resources: [{base}/base]", "components:"]
    lines += [f"  - {base}/components/{name}" for name in components]
    (place / "kustomization.yaml").write_text("\n".join(lines if components else lines[:1]))
    return parsed(kustomize(place))
