"""What an installed wheel can do that a checkout can: above all, find the probe."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    (built,) = folder.glob("rankscope-*.whl")
    return built


def test_the_wheel_holds_the_packages_and_the_probe_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name.split("/")[0]} == {
        "rankscope_agent",
        "rankscope_analyzers",
        "rankscope_dashboards",
    }
    assert "rankscope_agent/probe/rankscope_probe.py" in names
    assert {
        f"rankscope_analyzers/reports/report_page/{file}" for file in ("page.html", "style.css")
    } < {*names}


def test_an_installed_rankscope_prints_a_folder_that_injects_the_probe(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    ask = "from rankscope_analyzers.cli import main; main(['probe-path'])"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {ask}"]
    printed = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=environment,
        cwd=tmp_path,
    ).stdout.strip()
    assert Path(printed) == site / "rankscope_agent" / "probe"
    show = (
        "from importlib.metadata import entry_points;"
        "print([point.value for point in entry_points(group='torch.backends')])"
    )
    points = subprocess.run(
        [sys.executable, "-c", show],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, "PYTHONPATH": printed},
    ).stdout
    assert "rankscope_probe:_autoload" in points


def test_an_installed_rankscope_writes_reports_with_their_runbooks(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    ask = (
        "import rankscope_analyzers.reports.html as report;"
        "import rankscope_analyzers.text.runbooks as books;"
        "print(len(report.write([]))); print(*map(len, map(books.text, books.PAGES)));"
        "print(books.text('RankscopeStragglerData'))"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {ask}"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    printed = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=environment,
        cwd=tmp_path,
    ).stdout
    size, pages, book = printed.split("\n", 2)
    assert int(size) > 10_000
    assert [*map(int, pages.split())] == [
        len((ROOT / f"docs/{page}.md").read_text()) for page in ("preflight", "verify")
    ]
    assert book.strip() == (ROOT / "docs/runbooks/RankscopeStragglerData.md").read_text().strip()
