"""The container image, without a container engine: its recipe, and its layers laid by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

import pytest
import tomllib

from installed import closure, needs_of
from rankscope_analyzers.cli import COMMANDS
from servers import require_tool

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "daemonset" / "Dockerfile"
PATIENCE_SECONDS = 900
MOST_BYTES = 60_000_000  # the promise to whoever pulls it on every node
MOST_BYTES_OF_ANALYZERS = 125_000_000
"""Unpacked. The base, python:3.12-slim-bookworm, has as much again: an image of 250 MB."""
ARM = ("--platform=manylinux2014_aarch64", "--platform=manylinux_2_28_aarch64")
ARM += ("--python-version=3.12", "--implementation=cp")


def run(*command: object, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        **more,
    )


def instructions(text: str) -> list[str]:
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text))
    return [line for line in joined.splitlines() if line.strip()]


def stages(text: str) -> dict[str, list[str]]:
    """Return the instructions of each stage by its name."""
    found: dict[str, list[str]] = {}
    for line in instructions(text):
        if line.startswith("FROM "):
            found[line.split()[-1]] = current = []
        elif found:
            current.append(line)
    return found


def test_hadolint_has_nothing_to_say():
    done = run(require_tool("hadolint"), RECIPE)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_would_speak_up(tmp_path):
    worse = tmp_path / "Dockerfile"
    worse.write_text(RECIPE.read_text().replace("FROM ${BASE} AS agent", "FROM python AS agent"))
    assert run(require_tool("hadolint"), worse).returncode != 0


def test_images_run_as_nobody_and_take_nothing_from_the_build_but_packages():
    text = RECIPE.read_text()
    found = stages(text)
    assert list(found) == ["build", "analyzers", "agent"]
    for name in ("analyzers", "agent"):
        assert "USER 65532:65532" in found[name]
        assert not [line for line in found[name] if line.startswith(("RUN", "ADD"))]
        copies = [line for line in found[name] if line.startswith("COPY")]
        assert copies == [f"COPY --from=build /{name} /opt/rankscope"]
    assert not re.search(r"\b(apt-get|gcc|g\+\+|make|curl|amd64|x86_64)\b", "".join(found["agent"]))
    assert "ARG BASE=" in text  # a release names a digest there


def ignored(path: str) -> bool:
    """Say whether .dockerignore keeps a path out: of the lines that match, the last one rules."""
    out = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if pattern.startswith("**/"):
            hit = pattern.removeprefix("**/") in path.split("/")
        else:
            hit = pattern == "*" or path == pattern or path.startswith(f"{pattern}/")
        out = (out and not hit) if line.startswith("!") else (out or hit)
    return out


def copied(folder: Path) -> None:
    """Lay into a folder what the first stage copies: no more than the engine would send it."""
    for line in stages(RECIPE.read_text())["build"]:
        if not line.startswith("COPY"):
            continue
        *sources, target = line.split()[1:]
        for source in sources:
            found = ROOT / source
            assert found.exists(), source
            files = found.rglob("*") if found.is_dir() else [found]
            for path in files:
                if path.is_file() and not ignored(str(path.relative_to(ROOT))):
                    inside = path.relative_to(found) if found.is_dir() else path.name
                    place = folder / target / inside
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, place)


def test_files_that_the_build_does_not_need_are_not_sent_to_it():
    for path in (".git/HEAD", "tests/x.py", "dashboards/x", "agent/a/__pycache__/x.pyc", ".venv/x"):
        assert ignored(path), path
    for path in ("agent/a.py", "pyproject.toml", "dashboards/generated/x.json"):
        assert not ignored(path), path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, made of what the recipe copies and of nothing else."""
    context = tmp_path_factory.mktemp("context")
    copied(context)
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", folder, context)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("rankscope-*.whl"))


def install(wheel: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Install what the image has, by the versions that this Python takes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    constraints = ("--constraint", ROOT / "constraints.txt", "--only-binary", ":all:")
    command = (sys.executable, "-m", "pip", "install", "--target", target)
    done = run(*command, *constraints, *project["optional-dependencies"]["agent"])
    return done if done.returncode else run(*command, "--no-deps", wheel)


def install_locked(image: str, *more: object) -> subprocess.CompletedProcess[str]:
    """Install by the locked versions and hashes, for the image's own Python on arm64."""
    locked = ROOT / "daemonset" / f"requirements-{image}.txt"
    command = (sys.executable, "-m", "pip", "install", "--only-binary", ":all:", *ARM, *more)
    return run(*command, "--require-hashes", "--requirement", locked)


@pytest.fixture(scope="module")
def layer(wheel, tmp_path_factory) -> Path:
    """What the image has in /opt/rankscope."""
    target = tmp_path_factory.mktemp("layer") / "opt"
    done = install(wheel, target)
    assert done.returncode == 0, done.stderr
    return target


def in_layer(layer: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the layer's packages and no others."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(layer)}
    return run(sys.executable, "-S", *arguments, env=environment, cwd=layer)


def test_the_agent_and_what_it_needs_stay_small(layer):
    assert bytes_in(layer) <= MOST_BYTES


def test_the_agent_starts_with_the_layers_packages_alone(layer, tmp_path):
    done = in_layer(layer, "-m", "rankscope_agent", "--once", f"--path.state={tmp_path}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "rankscope_build_info{" in done.stdout
    needs = "import bcrypt, h2, pynvml, yaml"
    assert in_layer(layer, "-c", needs).returncode == 0
    for heavy in ("numpy", "pandas", "torch", "kubernetes"):
        assert in_layer(layer, "-c", f"import {heavy}").returncode != 0


def test_an_init_container_finds_the_probe_in_the_layer(layer, tmp_path):
    done = in_layer(layer, "-m", "rankscope_agent", f"--copy-probe={tmp_path}/probe")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "probe" / "rankscope_probe.py").is_file()


def test_every_package_of_the_agent_has_a_wheel_for_arm64(tmp_path):
    done = install_locked("agent", "--no-compile", "--target", tmp_path / "arm")
    assert done.returncode == 0, done.stderr
    machines = {elf_machine(path) for path in (tmp_path / "arm").rglob("*.so*")}
    assert machines == {183}  # EM_AARCH64, of the ELF specification's supplement


def test_every_package_of_the_analyzers_has_a_wheel_for_arm64(tmp_path):
    only_found = ("--dry-run", f"--report={tmp_path}/found.json", "--quiet")
    done = install_locked("analyzers", "--target", tmp_path / "arm", *only_found)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())["install"]
    assert {"numpy", "pandas", "kubernetes"} <= {one["metadata"]["name"] for one in found}
    assert all("x86_64" not in one["download_info"]["url"] for one in found)


def lay(package: metadata.Distribution, target: Path) -> None:
    """Lay a package into a folder as pip would, of the version that is installed here.

    With what is compiled of it here: pip compiles all of it.
    """
    files = [file for file in package.files or () if file.parts[0] != ".."]
    sources = [file for file in files if "__pycache__" not in file.parts]
    compiled = [Path(cache_from_source(file)) for file in sources if file.suffix == ".py"]
    for file in (*sources, *compiled):
        there, place = Path(package.locate_file(file)), target / file
        if there.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            try:  # a second name costs less than a copy, and nothing writes into these files
                place.hardlink_to(there)
            except OSError:  # of another file system
                shutil.copy2(there, place)


@pytest.fixture(scope="module")
def analyzers_layer(wheel, tmp_path_factory) -> Path:
    """What the analyzers' image has in /opt/rankscope, for this Python."""
    target = tmp_path_factory.mktemp("analyzers") / "opt"
    for name in closure(needs_of("agent")):
        lay(metadata.distribution(name), target)
    unpack = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-compile",
        "--no-deps",
        "--target",
        target,
    )
    done = run(*unpack, wheel)
    assert done.returncode == 0, done.stderr
    assert bytes_in(target) > 1.5 * MOST_BYTES_OF_ANALYZERS
    build = "\n".join(stages(RECIPE.read_text())["build"])
    (slim,) = re.findall(r"&& python3 (\S+) /analyzers$", build, re.MULTILINE)
    done = run(sys.executable, ROOT / slim, target)
    assert done.returncode == 0, done.stderr
    return target


def test_a_watch_and_what_it_needs_stay_small(analyzers_layer):
    """With what Python compiles of them."""
    assert bytes_in(analyzers_layer) <= MOST_BYTES_OF_ANALYZERS
    assert not [*analyzers_layer.glob("pyarrow*"), *analyzers_layer.glob("torch*")]


HELP = """
import os, sys
from rankscope_analyzers.cli import main
for command in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        sys.exit(main([command, "--help"]))
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(f"{command} fails")
"""
"""Each in a process of its own, so that none finds what another one imported."""


def test_all_commands_start_with_the_analyzers_packages_alone(analyzers_layer):
    done = in_layer(analyzers_layer, "-c", HELP, *COMMANDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"(?m)^usage: rankscope (\S+)", done.stdout) == [*COMMANDS]
    done = in_layer(analyzers_layer, "-m", "rankscope_analyzers", "watch", "--once", "--agent=x:1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_modules_that_commands_import_are_compiled(analyzers_layer):
    for name in ("rankscope_analyzers/commands", "pandas/core", "numpy/_core"):
        assert list((analyzers_layer / name).glob("__pycache__/*.pyc")), name


LEASE = """
import sys
from kubernetes import client
api = client.ApiClient()
lease = client.V1Lease(metadata=client.V1ObjectMeta(name="a"), spec=client.V1LeaseSpec())
found = api.sanitize_for_serialization(lease)
assert found["metadata"] == {"name": "a"}, found
for name in ("CoreV1Api", "CoordinationV1Api", "CustomObjectsApi", "EventsV1Api"):
    getattr(client, name)(api)
try:
    client.AppsV1Api
except ImportError:
    sys.exit()
raise AssertionError("AppsV1Api is left")
"""


def test_what_is_left_of_kubernetes_client_serves_a_watch(analyzers_layer):
    done = in_layer(analyzers_layer, "-c", LEASE)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_to_be_taken_out_and_is_not_there_ends_the_build(tmp_path):
    done = run(sys.executable, ROOT / "daemonset" / "slim_analyzers.py", tmp_path)
    assert done.returncode != 0
    assert "has no kubernetes/aio" in done.stderr


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def elf_machine(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[18:20], "little")


def test_the_entry_points_of_both_images_run():
    for module, stage in (("rankscope_agent", "agent"), ("rankscope_analyzers", "analyzers")):
        assert f'ENTRYPOINT ["python3", "-m", "{module}"]' in stages(RECIPE.read_text())[stage]
        assert run(sys.executable, "-m", module, "--version").returncode == 0


def test_what_is_in_the_image_can_be_listed_with_versions_and_licences(layer):
    """As makers of bills of materials do: by the metadata that lies beside each package."""
    found = {one.metadata["Name"].lower(): one for one in metadata.distributions(path=[str(layer)])}
    assert {"rankscope", "nvidia-ml-py", "h2", "bcrypt"} <= {*found}
    for name, one in found.items():
        licence = [one.metadata.get(key) for key in ("License-Expression", "License")]
        named = [line for line in one.metadata.get_all("Classifier", ()) if "License" in line]
        assert one.version, name
        assert any(licence) or named, name
        assert one.files, name
    owned = {str(file) for one in found.values() for file in one.files or ()}
    here = {str(path.relative_to(layer)) for path in layer.rglob("*.so*")}
    assert here <= owned
