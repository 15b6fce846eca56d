"""The step of a release behind pushing its images: names them, by digest, wherever manifests do.

`python daemonset/set_images.py REGISTRY/rankscope-agent@sha256:… REGISTRY/rankscope@sha256:…` fills
images/kustomization.yaml, writes install.yaml anew from it, and names the images where the probe is
copied from and a pod is checked, which no kustomization reaches: those files stand by themselves.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
ENTRY = Path("images", "kustomization.yaml")
PROBES = (
    Path("components", "probe-injection", "policy.yaml"),
    Path("probe", "kyverno.yaml"),
    Path("probe", "pod-template.yaml"),
)
GATES = (Path("preflight", "init-container.yaml"),)
NAMES = ("ghcr.io/rankscope/rankscope-agent", "ghcr.io/rankscope/rankscope")
_IMAGE = re.compile(r"([a-z0-9][a-z0-9.-]*(?::\d+)?(?:/[a-z0-9._-]+)+)@(sha256:[0-9a-f]{64})")
_ENTRY = re.compile(r"  - \{name: (\S+?), (?:newName: (\S+?), )?(newTag|digest): (\S+?)\}\n")


def parse(image: str) -> tuple[str, str]:
    """Return name and digest of an image.

    Raises:
        ValueError: it is not named by its digest, so that it could be replaced.
    """
    found = _IMAGE.fullmatch(image)
    if found is None:
        raise ValueError(f"{image!r} is not REGISTRY/NAME@sha256:DIGEST, as a push reports it")
    return found[1], found[2]


def current(entry: str, number: int = 0) -> str:
    """Return the agent's image as the entry has it; that of the analyzers is number 1."""
    name, new_name, kind, value = _ENTRY.findall(entry)[number]
    return f"{new_name or name}{':' if kind == 'newTag' else '@'}{value}"


def filled(entry: str, images: Sequence[str]) -> str:
    """Return the entry with the agent's image and that of the analyzers."""
    lines = [
        f"  - {{name: {name}, newName: {new_name}, digest: {digest}}}\n"
        for name, (new_name, digest) in zip(NAMES, map(parse, images), strict=True)
    ]
    head, _, _ = entry.partition("  - ")
    return head + "".join(lines)


def set_images(folder: Path, images: Sequence[str]) -> None:
    """Name the images in the manifests of a folder.

    Raises:
        ValueError: an image is not named by its digest.
        subprocess.CalledProcessError: kubectl does not take the kustomization.
    """
    before = (folder / ENTRY).read_text()
    after = filled(before, images)
    (folder / ENTRY).write_text(after)
    for number, paths in enumerate((PROBES, GATES)):
        for path in paths:
            text = (folder / path).read_text()
            new = text.replace(current(before, number), current(after, number))
            (folder / path).write_text(new)
    rendered = subprocess.run(
        ["kubectl", "kustomize", str(folder / "install")],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
    )
    (folder / "install.yaml").write_text(rendered.stdout)


def main() -> None:
    """Name the images that the command line gives: the agent's, then that of the analyzers."""
    if len(sys.argv) != 1 + len(NAMES):
        raise SystemExit(__doc__)
    try:
        set_images(FOLDER, sys.argv[1:])
    except ValueError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
