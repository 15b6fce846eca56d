"""Walks the way of CONTRIBUTING.md: a new collector is its room, metrics and test, and one row."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COPIED = ("agent", "analyzers", "dashboards", "pyproject.toml", "tests")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "node_modules", "render", "images")

NEW_FILES = {
    "agent/rankscope_agent/contract/metrics/uptime.py": '''\
"""Series about how long the node has been up."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

UPTIME = Metric("rankscope_node_uptime_seconds", "gauge", "Time since the node's start.")
''',
    "agent/rankscope_agent/sources/uptime.py": '''\
"""How long the node has been up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rankscope_agent.contract.metrics import uptime as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData


def create(config: Config) -> UptimeCollector:
    """Make the collector of the node's uptime."""
    return UptimeCollector(config.procfs / "uptime")


class UptimeCollector:
    """Reads /proc/uptime.

    Args:
        file: where it is.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def collect(self) -> Iterator[Sample]:
        """Yield the uptime.

        Raises:
            NoData: there is no such file.
        """
        try:
            text = self._file.read_text(encoding="ascii")
        except FileNotFoundError:
            raise NoData(f"{self._file} does not exist") from None
        yield metrics.UPTIME.sample(float(text.split()[0]))
''',
    "tests/test_uptime.py": """\
from rankscope_agent.sources.uptime import UptimeCollector


def test_the_first_number_is_the_uptime(tmp_path):
    (tmp_path / "uptime").write_text("35.5 70.2\\n")
    (sample,) = UptimeCollector(tmp_path / "uptime").collect()
    assert (sample.metric.name, sample.value) == ("rankscope_node_uptime_seconds", 35.5)
""",
}
TABLE = "agent/rankscope_agent/contract/sources.py"
ROW = """\
    Source(
        "uptime",
        "rankscope_agent.sources.uptime.create",
        (uptime,),
        importance=150,
        needs="hostPath /proc at --path.procfs: base",
        remedy="say where the host's /proc is (--path.procfs)",
    ),
"""
TESTS_OF_TABLES = ("test_uptime.py", "test_source_table.py", "test_series_budget.py")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the project in which the collector was added: three files, and one row."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=LEFT_OUT)
        else:
            shutil.copy(source, copy)
    for name, text in NEW_FILES.items():
        (copy / name).write_text(text)
    table = copy / TABLE
    text = table.read_text().replace("    training,\n)", "    training,\n    uptime,\n)", 1)
    table.write_text(text.replace(')\n"""All sources,', f'{ROW})\n"""All sources,', 1))
    return copy


def run(checkout: Path, *command: str) -> str:
    paths = (checkout / name for name in ("agent", "analyzers", "dashboards"))
    done = subprocess.run(
        command,
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_new_collector_is_on_the_page_and_can_be_switched_off(checkout, tmp_path):
    (tmp_path / "uptime").write_text("35.5 70.2\n")
    agent = (sys.executable, "-m", "rankscope_agent", "--once", f"--path.procfs={tmp_path}")
    assert "\nrankscope_node_uptime_seconds 35.5\n" in run(checkout, *agent)
    page = run(checkout, *agent, "--no-collector.uptime")
    assert "uptime" not in page


def test_everything_that_reads_the_table_knows_the_new_collector(checkout):
    program = """
from rankscope_agent.collecting.series_budget import IMPORTANCE
from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_agent.contract.requirements import remedy_text
from rankscope_analyzers.doctor.checks import remedy
name = "rankscope_node_uptime_seconds"
assert name in {metric.name for metric in CATALOGUE}
assert IMPORTANCE[name] == max(IMPORTANCE.values())
print(remedy_text("uptime"), remedy("uptime"))
"""
    said = run(checkout, sys.executable, "-c", program)
    assert said.count("hostPath /proc at --path.procfs: base") == 2
    assert "say where the host's /proc is" in said


def test_the_tests_of_the_tables_and_the_contracts_between_rooms_hold(checkout):
    tests = [f"tests/{name}" for name in TESTS_OF_TABLES]
    run(checkout, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    run(checkout, str(Path(sys.executable).with_name("lint-imports")), "--no-cache")


def test_four_files_are_enough_one_of_which_was_there():
    assert len({*NEW_FILES, TABLE}) <= 4
    assert [name for name in (*NEW_FILES, TABLE) if (ROOT / name).exists()] == [TABLE]
