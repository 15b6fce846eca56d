"""A pytest plugin: collects all tests once, and forks for each mutant.

First each test file runs once and records what each test reaches and how long it takes; then, for
each mutant, the tests that reach it run, the quickest ones first, until one fails. Tests that start
Python programs, which do not see a mutant, and slow tests are left out; they may notice mutants
that survive.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import pytest
from benchmarks.mutants import application, dependence, instrumented, programs
from benchmarks.mutants.assigned import is_assigned
from benchmarks.mutants.choice import imported_by_tests
from benchmarks.mutants.costs import is_cost
from benchmarks.mutants.dependence import Dependents, module_name
from benchmarks.mutants.forks import in_fork
from benchmarks.mutants.order import MUTANT_CPU_SECONDS, Reach, quickest
from benchmarks.mutants.population import Mutant

ROOT = Path(__file__).parents[2]
MUTANTS, RESULTS = "RANKSCOPE_MUTANTS", "RANKSCOPE_MUTANT_RESULTS"
"""Variables with the files of mutants and of results, one JSON object per line."""

FILE_SECONDS = 60.0
"""Seconds that a test file may take when it is first run; tests after that are left out."""

TEST_SECONDS = 6.0
"""Slower tests are left out."""

Outcome = Literal["killed", "alive", "timed out", "not reached"]


instrumented.install(ROOT)


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the tests for each mutant instead of once."""
    programs.refuse_python()
    gc.collect()
    gc.freeze()
    items = {item.nodeid: item for item in session.items}
    tests = {
        nodeid: reach
        for own in _by_file(session.items)
        for nodeid, reach in _recorded(own).items()
        if reach.passed and reach.seconds < TEST_SECONDS
    }
    reaching: dict[str, list[str]] = defaultdict(list)
    for nodeid, reach in tests.items():
        for function in reach.functions:
            reaching[function].append(nodeid)
    plain = [nodeid for nodeid, reach in tests.items() if not reach.functions]
    sources, importers = dependence.read(ROOT), application.importers()
    imported = imported_by_tests(ROOT, sources)
    for line in Path(os.environ[MUTANTS]).read_text(encoding="utf-8").splitlines():
        mutant = Mutant(**json.loads(line))
        dependents = sources.dependents(mutant)
        reached = {nodeid for name in dependents.functions for nodeid in reaching[name]}
        # A table may be compared as a whole, without any function of the project.
        module = module_name(mutant.path)
        reached |= {nodeid for nodeid in plain if module in imported[nodeid.partition("::")[0]]}
        files = {path: len(names) for path, names in imported.items()}
        chosen = [items[one] for one in quickest({one: tests[one] for one in reached}, files)]
        apply = _Mutation(mutant, dependents, sources, importers)
        outcome, by = _outcome(apply, chosen)
        _write(mutant, outcome, by, len(chosen))
    return True


def _by_file(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)
    return list(files.values())


def _recorded(items: Sequence[pytest.Item]) -> dict[str, Reach]:
    """Run the tests of a file in a fork; return those that it reached."""
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as file:

        def run() -> None:
            for item, following in zip_longest(items, items[1:]):
                instrumented.REACHED.clear()
                failed, clock, cpu = item.session.testsfailed, time.monotonic(), time.process_time()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                reach = Reach(
                    time.monotonic() - clock,
                    time.process_time() - cpu,
                    item.session.testsfailed == failed,
                    tuple(instrumented.REACHED),
                )
                file.write(f"{json.dumps([item.nodeid, asdict(reach)])}\n")
                file.flush()

        in_fork(run, FILE_SECONDS)
        file.seek(0)
        whole = [line for line in file if line.endswith("\n")]
    return {nodeid: Reach(**values) for nodeid, values in map(json.loads, whole)}


@dataclass(frozen=True, slots=True)
class _Mutation:
    mutant: Mutant
    dependents: Dependents
    sources: dependence.Sources
    importers: application.Importers

    def __call__(self) -> None:
        source = (ROOT / self.mutant.path).read_text(encoding="utf-8")
        application.apply(self.mutant, source, self.dependents, self.sources.trees, self.importers)


def _outcome(apply: _Mutation, items: Sequence[pytest.Item]) -> tuple[Outcome, str]:
    """Return the result of a mutant, and the test that noticed it."""
    if not items:
        return "not reached", ""
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as file:

        def run() -> None:
            try:
                apply()
            except Exception as error:  # noqa: BLE001 - the mutated module cannot be imported
                file.write(f"import: {error!r}")
                file.flush()
                return
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            for item, following in zip_longest(items, items[1:]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if item.session.testsfailed:
                    file.write(item.nodeid)
                    file.flush()
                    return

        status = in_fork(run, 20 + 6 * MUTANT_CPU_SECONDS)
        file.seek(0)
        by = file.read()
    if status is None:
        return "timed out", ""
    return ("killed", by or f"exit status {status}") if by or status else ("alive", "")


def _write(mutant: Mutant, outcome: Outcome, by: str, tests: int) -> None:
    result = {
        "mutant": str(mutant), "outcome": outcome, "by": by, "tests": tests,
        "assigned": is_assigned(mutant), "cost": is_cost(mutant),
    }  # fmt: skip
    with Path(os.environ[RESULTS]).open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(result)}\n")
