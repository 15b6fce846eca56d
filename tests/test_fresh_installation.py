"""What `pip install rankscope` and its extras bring is enough for the commands and the agent.

A folder of links has the packages that pyproject.toml asks for, as they are installed here, with
what they ask for; a program that is started with it alone can import nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from installed import closure, needs_of
from rankscope_analyzers import cli

PATIENCE_SECONDS = 120
SOURCES = {
    "agent": "rankscope_agent",
    "analyzers": "rankscope_analyzers",
    "dashboards": "rankscope_dashboards",
}
ROOT = Path(__file__).parent.parent

COMMAND, AGENT = "rankscope_analyzers.cli", "rankscope_agent.cli"
DASHBOARDS = "rankscope_dashboards.generate"
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {} import main; sys.exit(main())"


def installation(folder: Path, *extras: str) -> Path:
    """Make a folder that has what an installation with these extras has."""
    for source, package in SOURCES.items():
        (folder / package).symlink_to(ROOT / source / package)
    for name in {"rankscope", *closure(needs_of(*extras))}:
        files = metadata.distribution(name).files or ()
        for top in {path.parts[0] for path in files} - {"..", "__pycache__", "/"}:
            source = Path(str(metadata.distribution(name).locate_file(top)))
            if not (folder / top).exists():
                (folder / top).symlink_to(source)
    return folder


def ran(site: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that sees the standard library and the folder alone."""
    command = [sys.executable, "-I", "-S", "-c", PROGRAM.format(module), str(site), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return installation(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def with_agent(tmp_path_factory):
    return installation(tmp_path_factory.mktemp("agent"), "agent")


def test_an_installation_has_what_was_asked_for_and_no_pytorch(plain, with_agent):
    assert {"pandas", "kubernetes", "prometheus_client"} <= {path.name for path in plain.iterdir()}
    for absent in ("torch", "pyarrow", "grafanalib"):
        assert not (with_agent / absent).exists()
    assert (with_agent / "pyroute2").exists()
    assert not (plain / "pyroute2").exists()


def test_each_command_has_its_help_in_a_plain_installation(plain):
    listed = ran(plain, COMMAND, "--help")
    assert listed.returncode == 0, listed.stderr
    assert all(name in listed.stdout for name in cli.COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("diagnose", "--agent", "127.0.0.1:1"),
        ("jobs", "--prometheus", "http://127.0.0.1:1"),
        ("doctor", "--agent", "127.0.0.1:1"),
        ("demo",),
    ],
    ids=" ".join,
)
def test_a_command_says_what_is_missing_in_one_sentence(plain, arguments):
    done = ran(plain, COMMAND, *arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert ("rankscope[demo]" in done.stderr) is (arguments == ("demo",))


def test_generating_dashboards_names_the_extra_in_one_sentence(plain, tmp_path):
    done = ran(plain, DASHBOARDS, "generate", "--out", str(tmp_path / "made"))
    needs = "grafanalib is not installed: pip install 'rankscope[dashboards]'"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"rankscope-dashboards: {needs}\n"
    assert not (tmp_path / "made").exists()


def test_dashboards_are_generated_in_an_installation_with_their_extra(tmp_path):
    site = installation(tmp_path, "dashboards")
    done = ran(site, DASHBOARDS, "generate", "--out", str(tmp_path / "made"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made" / "dashboards" / "rankscope-debug.json").is_file()


def test_the_agent_prints_its_page_in_an_installation_with_its_extra(with_agent):
    done = ran(with_agent, AGENT, "--once", "--simulate=h100x8")
    assert done.returncode == 0, done.stderr
    assert 'rankscope_collector_success{collector="nvml"} 1.0' in done.stdout
