"""Mutation testing of constants: which numbers there are, who depends on them, what is reported."""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path

import pytest
from benchmarks.mutants import application, dependence, order, population, programs
from benchmarks.mutants.__main__ import report
from benchmarks.mutants.assigned import ASSIGNED, is_assigned
from benchmarks.mutants.choice import imported_by_tests
from benchmarks.mutants.choice import test_files_for as files_for
from benchmarks.mutants.costs import COSTS, is_cost
from benchmarks.mutants.instrumented import REACHED, instrumented
from benchmarks.mutants.population import Mutant, mutants_of

SOURCE = '''
from dataclasses import dataclass

LIMIT = 64 << 10
SHARES = {"small": 0.25, "large": -2}
TWICE = 2 * LIMIT
NAME = "3"
FLAG = True


@dataclass
class Options:
    count: int = 5
    name: str = "x"


def read(size=LIMIT, *, most: int = 7):
    """Return what is read."""
    return size + 100, most


def late():
    return TWICE
'''

BORROWER = "from sample import LIMIT as borrowed\n\nDOUBLED = 2 * borrowed\n"


def mutants():
    return {f"{one.name} {one.old}": one for one in mutants_of("agent/sample.py", SOURCE)}


def test_numbers_of_constants_fields_and_defaults_are_mutated_and_others_are_not():
    assert list(mutants()) == [
        "LIMIT 64 << 10",
        "SHARES 0.25",
        "SHARES -2",
        "TWICE 2",
        "Options.count 5",
        "read() 7",
    ]


@pytest.mark.parametrize(
    ("value", "other"), [(0, 1), (1, 2), (3, 6), (64, 32), (7, 14), (0.25, 0.5), (0.005, 0.0025)]
)
def test_a_number_becomes_another_one_that_matters(value, other):
    assert population.mutated(value) == other


def test_a_mutant_changes_its_number_alone():
    changed = mutants()["SHARES -2"].applied(SOURCE)
    assert changed == SOURCE.replace('"large": -2', '"large": -4')
    assert "LIMIT = 32768\n" in mutants()["LIMIT 64 << 10"].applied(SOURCE)


@pytest.fixture
def sample(monkeypatch):
    """A module that is imported, and one that took names of it."""
    module = types.ModuleType("sample")
    module.__file__ = "sample.py"
    monkeypatch.setitem(sys.modules, "sample", module)
    exec(compile(SOURCE, "sample.py", "exec"), vars(module))
    other = types.ModuleType("other")
    other.__file__ = "other.py"
    vars(other).update(borrowed=module.LIMIT, DOUBLED=2 * module.LIMIT)
    monkeypatch.setitem(sys.modules, "other", other)
    return module, other


def applied(mutant):
    trees = {"sample": ast.parse(SOURCE), "other": ast.parse(BORROWER)}
    sources = dependence.Sources(trees, {name: f"agent/{name}.py" for name in trees})
    for name in trees:
        dependence._read_module(sources, name)
    dependents = sources.dependents(mutant)
    importers = {("sample", "LIMIT"): [("other", "borrowed")]}
    application.apply(mutant, SOURCE, dependents, sources.trees, importers)
    return dependents


def test_a_mutant_reaches_whatever_was_made_of_it(sample):
    module, other = sample
    dependents = applied(mutants()["LIMIT 64 << 10"])
    assert (module.LIMIT, module.TWICE, other.borrowed) == (32768, 65536, 32768)
    assert module.read() == (32868, 7)
    assert module.late() == 65536
    assert other.DOUBLED == 65536
    assert {name for _, name in dependents.names} == {"LIMIT", "TWICE", "DOUBLED"}
    assert len(dependents.functions) == 2


@pytest.mark.parametrize(
    ("name", "value"), [("Options.count 5", 10), ("read() 7", 14), ("SHARES 0.25", 0.5)]
)
def test_a_mutant_reaches_fields_defaults_and_tables(sample, name, value):
    module, _ = sample
    applied(mutants()[name])
    found = {"Options.count 5": module.Options().count, "read() 7": module.read()[1]}
    assert found.get(name, module.SHARES["small"]) == value


FIELDS = """
import attr
from dataclasses import dataclass

@attr.s(kw_only=True)
class Panel:
    width: int = attr.ib(default=12)
    height: int = attr.ib(default=8)

@attr.s(kw_only=True)
class Stat(Panel):
    height: int = attr.ib(default=4)

@dataclass
class Limit:
    most: int = 5

@dataclass
class Late(Limit):
    seconds: float = 1.0
"""


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("Panel.width", (6, 8, 6, 4, 5)),
        ("Panel.height", (12, 4, 12, 4, 5)),
        ("Stat.height", (12, 8, 12, 2, 5)),
        ("Limit.most", (12, 8, 12, 4, 10)),
    ],
)
def test_classes_below_have_the_changed_default_of_a_field_too(monkeypatch, field, values):
    module = types.ModuleType("sample")
    monkeypatch.setitem(sys.modules, "sample", module)
    exec(compile(FIELDS, "sample.py", "exec"), vars(module))
    sources = dependence.Sources({"sample": ast.parse(FIELDS)}, {"sample": "agent/sample.py"})
    dependence._read_module(sources, "sample")
    (mutant,) = (one for one in mutants_of("agent/sample.py", FIELDS) if one.name == field)
    application.apply(mutant, FIELDS, sources.dependents(mutant), sources.trees, {})
    panel, stat, late = module.Panel(), module.Stat(), module.Late()
    assert (panel.width, panel.height, stat.width, stat.height, late.most) == values


def test_a_cache_of_another_size_is_made_anew(sample, monkeypatch):
    module, other = sample
    source = """
from functools import lru_cache

KEPT = 3


@lru_cache(maxsize=KEPT)
def read(number):
    return number
"""
    exec(compile(source, "sample.py", "exec"), vars(module))
    monkeypatch.setitem(vars(other), "read", module.read)
    (kept,) = mutants_of("agent/sample.py", source)
    trees = {"sample": ast.parse(source), "other": ast.parse("")}
    dependents = dependence.Dependents((("sample", "KEPT"),), frozenset())
    importers = {("sample", "read"): [("other", "read")]}
    application.apply(kept, source, dependents, trees, importers)
    assert other.read.cache_parameters()["maxsize"] == module.KEPT == 6
    assert other.read is module.read


def test_methods_see_the_fields_of_their_class():
    source = """
LIMIT = 5

class Budget:
    most: int = LIMIT

    def left(self):
        return self.most

def budget():
    return Budget()
"""
    sources = dependence.Sources({"sample": ast.parse(source)}, {"sample": "agent/sample.py"})
    dependence._read_module(sources, "sample")
    (limit,) = mutants_of("agent/sample.py", source)
    assert sources.dependents(limit).functions == {"agent/sample.py:7", "agent/sample.py:10"}


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ([sys.executable, "-m", "pytest"], True),
        ("python3", True),
        ([Path(sys.executable).with_name("rankscope"), "demo"], True),
        (["/usr/bin/promtool", "check"], False),
        ([b"git", b"log"], False),
    ],
)
def test_tests_that_start_python_programs_do_not_count(command, refused):
    assert programs.is_python(command) is refused


def test_functions_note_that_they_ran(monkeypatch):
    monkeypatch.setattr("builtins.__rankscope_reached__", REACHED.add, raising=False)
    found = {}
    exec(compile(instrumented(SOURCE.encode(), "sample.py"), "sample.py", "exec"), found)
    REACHED.clear()
    assert found["late"]() == 2 * (64 << 10)
    assert len(REACHED) == 1
    assert found["read"].__doc__ == "Return what is read."


def test_tests_of_a_mutant_import_its_module_or_one_that_imports_it(tmp_path):
    package = tmp_path / "agent" / "rankscope_agent"
    package.mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    texts = {
        package / "limits.py": "LIMIT = 5\n",
        package / "reader.py": "from rankscope_agent.limits import LIMIT\n",
        package / "other.py": "OTHER = 7\n",
        tmp_path / "tests/test_limits.py": "from rankscope_agent import limits\n",
        tmp_path / "tests/test_reader.py": "from rankscope_agent.reader import LIMIT\n",
        tmp_path / "tests/test_other.py": "from rankscope_agent.other import OTHER\n",
    }
    for path, text in texts.items():
        path.write_text(text)
    known = population.population(tmp_path)
    assert [one.name for one in known] == ["LIMIT", "OTHER"]
    files = files_for(tmp_path, dependence.read(tmp_path), known[:1])
    assert [path.name for path in files] == ["test_limits.py", "test_reader.py"]


def test_of_tests_that_reach_a_number_from_afar_those_that_write_it_out_come_first(tmp_path):
    package = tmp_path / "agent" / "rankscope_agent"
    package.mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (package / "limits.py").write_text("LIMIT = 64 << 10\n")
    (package / "reader.py").write_text("from rankscope_agent.limits import LIMIT\n")
    for number in range(12):
        written = {10: "(64 << 10) + 1", 11: "65536.0"}.get(number, "1 / 0")
        text = f"from rankscope_agent.reader import read\nSIZE = {written}\n"
        (tmp_path / f"tests/test_{number:02d}.py").write_text(text)
    files = files_for(tmp_path, dependence.read(tmp_path), population.population(tmp_path))
    names = [path.name for path in files]
    assert names == [f"test_{number:02d}.py" for number in (*range(8), 10, 11)]


def result(outcome, **classes):
    mutant = Mutant("a.py", 1, 0, 1, "LIMIT", "1", "2")
    found = {"mutant": str(mutant), "outcome": outcome, "by": "", "tests": 3}
    return found | {"assigned": False, "cost": False} | classes


def test_a_module_that_a_test_imports_by_name_is_imported(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(
        'import pytest\nmeasure = pytest.importorskip("package.limits", reason="needs torch")\n'
    )
    trees = {"package.limits": ast.parse("MAX = 5")}
    imported = imported_by_tests(tmp_path, types.SimpleNamespace(trees=trees))
    assert imported == {"tests/test_a.py": frozenset({"package.limits"})}


def test_what_a_test_file_takes_from_another_one_brings_that_ones_imports_along(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_node.py").write_text("from package.limits import MAX\n")
    (tmp_path / "tests" / "test_bounds.py").write_text("from test_node import Node\n")
    trees = {"package.limits": ast.parse("MAX = 5")}
    imported = imported_by_tests(tmp_path, types.SimpleNamespace(trees=trees))
    assert imported["tests/test_bounds.py"] == frozenset({"package.limits"})


def test_of_equally_quick_tests_those_of_files_that_import_little_come_first():
    reach = order.Reach(0.001, 0.001, True, ())
    tests = dict.fromkeys(("tests/test_all.py::test_a", "tests/test_one.py::test_b"), reach)
    imports = {"tests/test_all.py": 90, "tests/test_one.py": 1}
    assert order.quickest(tests, imports) == [
        "tests/test_one.py::test_b",
        "tests/test_all.py::test_a",
    ]


def test_the_report_names_what_no_test_noticed():
    results = [result("killed"), result("killed", assigned=True), result("alive")]
    assert report(results).splitlines() == [
        "3 mutants: 2 killed, 1 alive",
        "  1 of the 2 in constants that this project chose killed",
        "  alive: a.py:1 LIMIT: 1 -> 2 (3 tests)",
    ]


def test_the_report_counts_what_only_trades_cost_apart():
    results = [result("killed"), result("alive", cost=True), result("killed", cost=True)]
    assert report(results).splitlines()[1:3] == [
        "  1 of the 1 in constants that this project chose killed",
        "  1 of the 2 in constants that only trade cost killed",
    ]


@pytest.fixture(scope="module")
def drawn():
    """All numbers of this project."""
    return population.population(Path(__file__).parents[1])


def test_numbers_that_were_assigned_elsewhere_are_drawn_like_others_and_all_exist(drawn):
    names = {(one.path, one.name) for one in drawn if is_assigned(one)}
    assert names == {(path, name) for path, all_ in ASSIGNED.items() for name in all_}
    assert not is_assigned(Mutant("agent/a.py", 1, 0, 1, "FAMILIES", "1", "2"))


def test_numbers_that_only_trade_cost_all_exist_are_few_and_have_a_reason(drawn):
    names = {(one.path, one.name) for one in drawn if is_cost(one)}
    assert names == {(path, name) for path, all_ in COSTS.items() for name in all_}
    assert len(names) <= 30
    assert not any(is_assigned(one) for one in drawn if is_cost(one))
    assert all(reason for reasons in COSTS.values() for reason in reasons.values())
