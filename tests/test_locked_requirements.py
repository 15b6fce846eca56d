"""What images install is known by version and hash, and is what pyproject.toml asks for."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "daemonset" / "Dockerfile"
_SPEC = importlib.util.spec_from_file_location("lock", ROOT / "daemonset/lock_requirements.py")
assert _SPEC
assert _SPEC.loader
lock = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(lock)
ENVIRONMENT = {"python_version": "3.12", "python_full_version": "3.12.0", "extra": ""}


def locked(image: str) -> dict[str, str]:
    """Return the versions of an image's packages; every line has hashes, or this fails."""
    text = (ROOT / "daemonset" / f"requirements-{image}.txt").read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines()[1:]:
        name, version, hashes = re.fullmatch(
            r"([a-z0-9._-]+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+)", line
        ).groups()
        found[canonicalize_name(name)] = version
        assert hashes
    return found


@pytest.mark.parametrize("image", lock.IMAGES)
def test_what_is_locked_is_what_the_project_asks_for(image):
    versions = locked(image)
    for line in lock.requirements(lock.IMAGES[image]):
        wanted = Requirement(line)
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), line


@pytest.mark.parametrize("image", lock.IMAGES)
def test_images_have_the_versions_that_tests_run_with(image):
    tested = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            one = Requirement(line)
            if one.marker is None or one.marker.evaluate(ENVIRONMENT):
                tested[canonicalize_name(one.name)] = str(one.specifier).removeprefix("==")
    for name, version in locked(image).items():
        assert tested.get(name, version) == version, name


def test_a_line_without_a_hash_or_of_another_version_would_be_seen(tmp_path, monkeypatch):
    (tmp_path / "daemonset").mkdir()
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    written = tmp_path / "daemonset" / "requirements-agent.txt"
    written.write_text(lock.text({"h2==9.0": frozenset({"0" * 64})}))
    assert locked("agent") == {"h2": "9.0"}
    written.write_text("# made\nh2==9.0\n")
    with pytest.raises(AttributeError):
        locked("agent")


def test_the_image_installs_what_is_locked_and_nothing_else():
    text = RECIPE.read_text()
    assert text.count("pip install") == 2
    assert "--require-hashes" in text
    assert '--requirement "daemonset/requirements-$image.txt"' in text
    assert re.search(r"pip install --no-deps --target \S+ /wheels/rankscope", text)


def test_what_builds_the_wheel_has_one_version():
    project = lock.tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert all("==" in one for one in project["build-system"]["requires"])


NOT_IN_THE_IMAGE = ("pyarrow", "kubernetes.aio", "aiohttp", "pandas.tests", "pygments", "torch")
WATCHES = """
import sys
sys.modules.update(dict.fromkeys({absent!r}))
from rankscope_analyzers.cli import main
from kubernetes import client, config
client.CoordinationV1Api, client.V1Lease, client.CoreV1Api, config.load_incluster_config
sys.exit(main(["watch", "--once", "--agent", "http://127.0.0.1:1"]))
"""


def test_a_watch_starts_without_what_its_image_lacks():
    assert not {"pyarrow", "torch"} & locked("analyzers").keys()
    program = WATCHES.format(absent=NOT_IN_THE_IMAGE)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 1  # that agent is not there
    assert "127.0.0.1:1" in done.stderr


def test_a_trace_in_parquet_says_what_it_takes(tmp_path):
    (tmp_path / "records.parquet").write_bytes(b"PAR1")
    program = "import sys; sys.modules['pyarrow'] = None\n"
    program += "from rankscope_analyzers.cli import main\nsys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, "diagnose", "--trace", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "pip install 'rankscope[analyzers]'" in done.stderr + done.stdout


def test_what_two_commands_install_lets_in_scrapers_and_the_watch_alone():
    objects = yaml.safe_load_all((ROOT / "daemonset" / "install.yaml").read_text())
    policies = {one["metadata"]["name"]: one for one in objects if one["kind"] == "NetworkPolicy"}
    assert policies.keys() == {"rankscope-agent", "rankscope-watch"}
    (rule,) = policies["rankscope-agent"]["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == ["metrics"]
