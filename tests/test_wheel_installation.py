"""The built wheel is installed with pip into an empty environment, with and without its extra, and
with pipx.

Nothing is downloaded: the wheels of its dependencies are packed again from what is installed here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
import tomllib
from packaging.tags import sys_tags

from installed import closure, needs_of, skip_without

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 300
EXTRA = "agent"


def pack(name: str, folder: Path) -> None:
    """Write the wheel that an installed distribution came from, without its scripts."""
    found = metadata.distribution(name)
    lines = (found.read_text("WHEEL") or "").splitlines()
    tags = {line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")}
    tag = next(str(one) for one in sys_tags() if str(one) in tags)
    stem = f"{found.name.replace('-', '_').replace('.', '_')}-{found.version}"
    with zipfile.ZipFile(folder / f"{stem}-{tag}.whl", "w") as archive:
        for path in found.files or ():
            source = Path(str(path.locate()))
            if path.parts[0] != ".." and path.suffix != ".pyc" and source.is_file():
                archive.write(source, str(path))


def run(command: Sequence[object], **variables: Path) -> subprocess.CompletedProcess[str]:
    environment: dict[str, str] = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    environment |= {name: str(value) for name, value in variables.items()}
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=environment,
    )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    """A folder with the built wheel and those of all that it asks for."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    done = run(build)
    assert done.returncode == 0, done.stderr
    for name in closure(needs_of(EXTRA)):
        pack(name, folder)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """The folder of programs of an empty environment."""
    folder = tmp_path_factory.mktemp("empty")
    made = run([sys.executable, "-m", "venv", "--without-pip", folder])
    assert made.returncode == 0, made.stderr
    return folder / "bin"


@pytest.fixture(scope="module")
def install(wheels, environment):
    """Install what is asked for as `pip install` does, from the wheels alone."""

    def installed(asked: str) -> None:
        pip = [sys.executable, "-m", "pip", "--python", environment / "python", "install"]
        done = run([*pip, "--quiet", "--no-compile", "--no-index", "--find-links", wheels, asked])
        assert done.returncode == 0, done.stderr

    return installed


def test_the_wheel_brings_a_program_that_runs_and_then_the_agent_with_its_extra(
    install, environment
):
    install("rankscope")
    version = run([environment / "rankscope", "--version"])
    assert version.stdout == f"rankscope {metadata.version('rankscope')}\n", version.stderr
    first = run([environment / "rankscope"])
    assert "rankscope demo --tour" in first.stdout
    probe = run([environment / "rankscope", "probe-path"]).stdout.strip()
    assert (Path(probe) / "rankscope_probe.py").is_file()
    assert run([environment / "python", "-c", "import pyroute2"]).returncode != 0

    install(f"rankscope[{EXTRA}]")
    assert run([environment / "python", "-c", "import pyroute2"]).returncode == 0
    page = run([environment / "rankscope-agent", "--once", "--simulate=h100x8"])
    assert page.returncode == 0, page.stderr
    assert 'rankscope_collector_success{collector="nvml"} 1.0' in page.stdout


def test_pipx_brings_the_programs_each_of_which_runs(wheels, tmp_path):
    skip_without("pipx", "`pipx install rankscope` is tried")
    pack("pip", wheels)  # pipx has one pip for all that it installs
    programs = tmp_path / "bin"
    folders = {"PIPX_HOME": tmp_path / "home", "PIPX_BIN_DIR": programs, "PIPX_MAN_DIR": tmp_path}
    of_pip = f"--pip-args=--no-index --no-compile --find-links={wheels}"
    done = run([sys.executable, "-m", "pipx", "install", of_pip, "rankscope"], **folders)
    assert done.returncode == 0, done.stderr
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {path.name for path in programs.iterdir()} == set(declared)
    for program in ("rankscope", "kubectl-rankscope"):
        version = run([programs / program, "--version"])
        assert version.stdout == f"rankscope {metadata.version('rankscope')}\n", version.stderr
    made = run([programs / "rankscope-dashboards", "generate", "--out", tmp_path / "made"])
    needs = "grafanalib is not installed: pip install 'rankscope[dashboards]'"
    assert (made.returncode, made.stderr) == (1, f"rankscope-dashboards: {needs}\n")
