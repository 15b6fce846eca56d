"""One row per collector: whatever reads the table of sources finds all that it needs there."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

from rankscope_agent.contract import metrics
from rankscope_agent.contract.catalogue import CATALOGUE, SUBJECTS
from rankscope_agent.contract.sources import BY_COLLECTOR_OR_PART, SOURCES


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_each_row_names_a_function_that_makes_a_collector(source):
    module, _, function = source.create.rpartition(".")
    assert module.startswith("rankscope_agent.sources.")
    assert callable(getattr(import_module(module), function))
    room = module.split(".")[2]
    assert source.metrics[0].__name__ == f"rankscope_agent.contract.metrics.{room}"
    assert source.needs
    assert source.remedy


def test_no_two_sources_or_parts_have_one_name():
    assert len(BY_COLLECTOR_OR_PART) == sum(1 + len(source.parts) for source in SOURCES)


def test_every_module_of_metrics_is_in_the_catalogue():
    modules = {f"{metrics.__name__}.{info.name}" for info in pkgutil.iter_modules(metrics.__path__)}
    assert modules == {subject.__name__ for subject in SUBJECTS}
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_a_collector_that_is_switched_off_is_not_even_imported(tmp_path):
    off = [f"--no-collector.{source.name}" for source in SOURCES if source.name != "rdma"]
    program = (
        "import sys; from rankscope_agent.cli import main; main(sys.argv[1:]);"
        "print([name for name in sys.modules if '.collector' in name], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--once", f"--path.sysfs={tmp_path}", *off],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stderr.splitlines()[-1]
    assert "rankscope_agent.sources.rdma.collector" in loaded
    assert "rankscope_agent.sources.host.collector" not in loaded
