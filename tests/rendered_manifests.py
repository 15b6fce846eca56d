"""What kubectl makes of folders under daemonset/."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
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


def written(place: Path, components: Sequence[str]) -> None:
    """Write the kustomization of the base with components into an empty folder."""
    base = os.path.relpath(ROOT, place)
    lines = [f"resources: [{base}/base]", "components:"]
    lines += [f"  - {base}/components/{name}" for name in components]
    (place / "kustomization.yaml").write_text("\n".join(lines if components else lines[:1]))


def combined(place: Path, components: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects of the base with components, by a kustomization in an empty folder."""
    written(place, components)
    return parsed(kustomize(place))


SUFFIX = re.compile(r"-number-(\d+)-of-all")
SUFFIXED = """\
resources: [../{number}]
nameSuffix: -number-{number}-of-all
patches:
  - target: {{kind: Namespace}}
    options: {{allowNameChange: true}}
    patch: |
      - {{op: replace, path: /metadata/name, value: rankscope-number-{number}-of-all}}
"""
"""Kustomize refuses two objects of one name, and gives namespaces no suffix."""


AT_ONCE = 8
"""Kubectl compares all names with each other; of many more it would take longer than of each."""


def combined_together(
    folder: Path, combinations: Sequence[Sequence[str]]
) -> list[list[dict[str, Any]]]:
    """Return what `combined` does of each combination, in any order, from fewer runs of kubectl.

    To start it takes longer than to render a combination. The names of each get a suffix, which
    is taken off again.
    """
    found = defaultdict[int, list[dict[str, Any]]](list)
    for first in range(0, len(combinations), AT_ONCE):
        numbered = dict(enumerate(combinations[first : first + AT_ONCE], start=first))
        for text in kustomize(_side_by_side(folder / f"from-{first}", numbered)).split("\n---\n"):
            (number,) = set(SUFFIX.findall(text))
            found[int(number)].append(_parsed_once(SUFFIX.sub("", text)))
    return [found[number] for number in range(len(combinations))]


def _side_by_side(folder: Path, combinations: Mapping[int, Sequence[str]]) -> Path:
    """Return a folder in which combinations are resources, with their numbers as suffixes."""
    for number, components in combinations.items():
        place, suffixed = folder / f"{number}", folder / f"{number}-suffixed"
        place.mkdir(parents=True)
        written(place, components)
        suffixed.mkdir()
        (suffixed / "kustomization.yaml").write_text(SUFFIXED.format(number=number))
    lines = ["resources:", *(f"  - {number}-suffixed" for number in combinations)]
    (folder / "kustomization.yaml").write_text("\n".join(lines))
    return folder


@functools.cache
def _parsed_once(text: str) -> dict[str, Any]:
    """Parse an object; most are in many combinations."""
    (one,) = parsed(text)
    return one
