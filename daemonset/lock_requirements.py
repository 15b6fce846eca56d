"""Writes what the images install, each file of it with its hashes: `daemonset/requirements-*.txt`.

`python daemonset/lock_requirements.py` asks pip which wheels Python 3.12 takes on amd64 and arm64
within the versions of constraints.txt; run it after a change of pyproject.toml or constraints.txt.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import tomllib

ROOT = Path(__file__).parent.parent
PLATFORMS = ("x86_64", "aarch64")
TAGS = ("manylinux2014", "manylinux_2_28")
PYTHON = "3.12"
IMAGES: Mapping[str, Sequence[str]] = {
    "agent": ("agent",),
    "analyzers": ("", "agent"),
}
"""The extras of pyproject.toml that each image installs; "" is what `rankscope` itself takes."""

Locked = Mapping[str, frozenset[str]]
"""Hashes by `name==version`."""


def requirements(names: Sequence[str]) -> list[str]:
    """Return the requirements of extras, which name no other extra, and for "" of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    of_name = project["optional-dependencies"] | {"": project["dependencies"]}
    return [line for name in names for line in of_name[name]]


def resolved(requirements: Sequence[str], platform: str) -> Iterator[tuple[str, str]]:
    """Yield `name==version` and hash of each wheel that a platform takes.

    Raises:
        subprocess.CalledProcessError: pip finds no such wheels.
    """
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
    options = ["--only-binary", ":all:", "--target", "unused", "--implementation", "cp"]
    options += ["--python-version", PYTHON, "--report", "-"]
    options += [f"--platform={tag}_{platform}" for tag in TAGS]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    done = subprocess.run(
        [*pip, *options, *constraints, *requirements], check=True, capture_output=True, text=True
    )
    for one in json.loads(done.stdout)["install"]:
        name, version = one["metadata"]["name"].lower(), one["metadata"]["version"]
        yield f"{name}=={version}", one["download_info"]["archive_info"]["hashes"]["sha256"]


def lock(image: str) -> Locked:
    """Return what an image installs, on whichever platform."""
    found: dict[str, set[str]] = {}
    for platform in PLATFORMS:
        for name, digest in resolved(requirements(IMAGES[image]), platform):
            found.setdefault(name, set()).add(digest)
    return {name: frozenset(found[name]) for name in sorted(found)}


def text(locked: Locked) -> str:
    """Return a requirements file that pip takes with `--require-hashes`."""
    head = "# Made by daemonset/lock_requirements.py; do not edit.\n"
    return head + "".join(
        f"{name}" + "".join(f" \\\n    --hash=sha256:{one}" for one in sorted(digests)) + "\n"
        for name, digests in locked.items()
    )


def main() -> None:
    """Write the files of all images."""
    for image in IMAGES:
        (ROOT / "daemonset" / f"requirements-{image}.txt").write_text(text(lock(image)))


if __name__ == "__main__":
    main()
