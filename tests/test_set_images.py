"""A release names its images by digest in one place, and no manifest keeps another name."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manifest_parts import containers
from manifest_rules import complaints
from rendered_manifests import ROOT, kustomize, parsed
from servers import require_tool

PROGRAM = ROOT / "set_images.py"
_SPEC = importlib.util.spec_from_file_location("set_images", PROGRAM)
assert _SPEC
assert _SPEC.loader
set_images = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(set_images)
AGENT = f"registry.example:5000/ml/rankscope-agent@sha256:{'a' * 64}"
ANALYZERS = f"registry.example:5000/ml/rankscope@sha256:{'b' * 64}"
OURS = re.compile(r"^[^#\n]*?(\S*\brankscope/rankscope(?:-agent)?[:@][\w.:-]+)", re.MULTILINE)


def release(folder: Path, *images: str) -> subprocess.CompletedProcess[str]:
    """Run the step in a copy of the manifests, in which every file may be changed."""
    tools = str(Path(require_tool("kubectl")).parent)
    return subprocess.run(
        [sys.executable, str(folder / PROGRAM.name), *images],
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def folder(tmp_path):
    """A checkout's manifests."""
    for name in ("daemonset", "dashboards/generated"):
        shutil.copytree(ROOT.parent / name, tmp_path / name)
    return tmp_path / "daemonset"


def yaml_files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.yaml")}


def test_one_entry_is_filled_and_every_manifest_names_the_images_by_their_digests(folder):
    before = yaml_files(folder)
    assert sum("newTag:" in text for text in before.values()) == 1
    done = release(folder, AGENT, ANALYZERS)
    assert done.returncode == 0, done.stderr
    changed = {name for name, text in yaml_files(folder).items() if text != before[name]}
    probes = {str(path) for path in (*set_images.PROBES, *set_images.GATES)}
    assert changed == {"images/kustomization.yaml", "install.yaml"} | probes
    for name in changed - {"images/kustomization.yaml"}:
        assert not OURS.search((folder / name).read_text()), name
    for overlay in sorted((folder / "overlays").iterdir()):
        objects = parsed(kustomize(overlay))
        images = {container["image"] for _, _, container in containers(objects)}
        assert images == {AGENT, ANALYZERS}, overlay
        assert complaints(objects) == []
    assert (folder / "install.yaml").read_text() == kustomize(folder / "install")
    assert AGENT in (folder / "components/probe-injection/policy.yaml").read_text()


def test_the_next_release_names_its_own(folder):
    later = AGENT.replace("a" * 64, "c" * 64)
    release(folder, AGENT, ANALYZERS)
    release(folder, later, ANALYZERS)
    text = "".join(yaml_files(folder).values())
    assert AGENT not in text
    assert text.count(later) == 1 + len(set_images.PROBES)


@pytest.mark.parametrize(
    "image",
    ["registry.example/rankscope-agent:1", "rankscope-agent", f"r.example/a@sha256:{'a' * 63}", ""],
)
def test_an_image_that_could_be_replaced_is_refused_and_nothing_is_written(folder, image):
    before = yaml_files(folder)
    done = release(folder, image, ANALYZERS)
    assert done.returncode == 1
    assert f"{image!r} is not REGISTRY/NAME@sha256:DIGEST" in done.stderr
    assert yaml_files(folder) == before


def test_without_two_images_it_says_what_it_takes(folder):
    done = release(folder)
    assert done.returncode == 1
    assert "set_images.py REGISTRY/rankscope-agent@sha256:" in done.stderr
