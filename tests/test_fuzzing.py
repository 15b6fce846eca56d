"""Parsers of untrusted input, a few hundred inputs each, and all inputs that ever broke one.

`make fuzz` gives them a hundred thousand each, guided by the branches that they reach.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.fuzzing.mutation import mutated
from benchmarks.fuzzing.table import PARTS, TARGETS
from benchmarks.fuzzing.target import BrokenPromiseError, Target, promise, run

FOUND = Path(__file__).parent / "fixtures" / "fuzzing"
BY_FOLDER = {target.folder: target for target in TARGETS.values()}
FINDINGS = sorted(FOUND.glob("*/*"))
INPUTS, SLOW_INPUTS = 200, 20
NUMBER, MOST_NUMBERS = re.compile(rb"(?<![\w.])\d+"), 40
SLOW_RUNS = 5_000
"""Targets that `make fuzz` gives so few inputs get few here too."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_damaged_input_is_read_or_refused_and_never_breaks_its_parser(name):
    target = TARGETS[name]
    seeds = list(target.seeds())
    assert any(run(target, seed) for seed in seeds), "no seed is accepted"
    for data in mutated(1, SLOW_INPUTS if target.runs <= SLOW_RUNS else INPUTS, seeds):
        run(target, data)


@pytest.mark.parametrize("name", TARGETS)
def test_a_number_of_thousands_of_digits_is_read_or_refused_wherever_it_stands(name):
    target = TARGETS[name]
    for seed in filter(bytes.isascii, target.seeds()):
        for number in itertools.islice(NUMBER.finditer(seed), MOST_NUMBERS):
            run(target, seed[: number.start()] + b"9" * 5000 + seed[number.end() :])


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_once_broke_a_parser_does_so_no_longer(path):
    run(BY_FOLDER[path.parent.name], path.read_bytes())


def test_names_of_targets_differ_as_those_of_their_folders_do():
    assert len(TARGETS) == len(BY_FOLDER) == sum(len(part.TARGETS) for part in PARTS)


def _careless(data: bytes) -> None:
    """Read a JSON object as one that trusts its writer would."""
    if data.startswith(b'{"count": '):
        float(int(data[10:-1]))


CARELESS = Target("careless", _careless, lambda: [b'{"count": 1}'])


def fuzz(target: Target) -> None:
    for data in mutated(1, 400, list(target.seeds())):
        run(target, data)


def test_a_parser_that_trusts_its_input_is_found():
    with pytest.raises(ValueError, match="invalid literal"):
        fuzz(CARELESS)
    with pytest.raises(OverflowError):
        fuzz(replace(CARELESS, refuses=(ValueError,)))
    fuzz(replace(CARELESS, refuses=(ValueError, OverflowError)))


def test_a_broken_promise_is_found_even_where_errors_of_values_are_refusals():
    def short(data: bytes) -> None:
        promise(len(data) < 3, "too long")

    with pytest.raises(BrokenPromiseError, match="too long"):
        fuzz(Target("promising", short, lambda: [b"abc"], (ValueError,)))


def test_a_warning_of_numpy_is_found():
    def cast(_: bytes) -> None:
        np.array([float("nan")]).astype(int)

    with pytest.raises(RuntimeWarning):
        fuzz(Target("casting", cast, lambda: [b"x"]))


def test_the_same_seed_gives_the_same_inputs():
    seeds = [b'{"a": [1, 2]}', b"line\nline\n"]
    assert list(mutated(3, 50, seeds)) == list(mutated(3, 50, seeds))
    assert list(mutated(3, 50, seeds)) != list(mutated(4, 50, seeds))
