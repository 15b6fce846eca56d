"""What the probe says of a model: its parameters, each once over all ranks, and its FLOPs."""

from __future__ import annotations

from pathlib import Path

import pytest

from installed import skip_without
from probe_jobs.nurseries import Nursery
from probe_jobs.running import OWN_STORE
from rankscope_agent.sources.training.reported import Signal, Signals, parse_signals

skip_without("torch", "these tests train with PyTorch")

PARAMETERS = 8 * 12 + 12 + 12 * 3 + 3
OF_FIRST_LAYER = 8 * 12 + 12


def said(nursery: Nursery, folder: Path, way: str, ranks: int = 2) -> list[Signals]:
    ended = nursery.run(folder, "sharing.py", way, ranks=ranks, **OWN_STORE)
    assert [one.code for one in ended] == [0] * ranks, ended[0].errors
    assert not any("rankscope" in one.errors for one in ended), ended[0].errors
    tables = [parse_signals(path.read_bytes()[64:]) for path in sorted(folder.glob("*.sig"))]
    assert len(tables) == ranks
    return tables


@pytest.mark.parametrize(
    ("way", "ranks", "whole"),
    [
        ("copies", 2, PARAMETERS),
        ("shards", 2, PARAMETERS),
        ("copies_of_shards", 4, PARAMETERS),
        ("columns", 4, OF_FIRST_LAYER),
        ("flat", 2, PARAMETERS),
        ("flat_in_place", 2, PARAMETERS),
    ],
)
def test_ranks_add_up_to_each_parameter_once(
    nursery: Nursery, tmp_path: Path, way: str, ranks: int, whole: int
) -> None:
    tables = said(nursery, tmp_path, way, ranks)
    total = sum(table[Signal.PARAMETERS_ONCE].value for table in tables)
    assert whole <= total < whole + ranks  # a flat parameter is padded to be split evenly


@pytest.mark.parametrize(("way", "ranks"), [("flat_copies", 4), ("plain", 2)])
def test_where_shards_may_have_copies_nothing_is_said(
    nursery: Nursery, tmp_path: Path, way: str, ranks: int
) -> None:
    for table in said(nursery, tmp_path, way, ranks):
        assert Signal.PARAMETERS_ONCE not in table
        assert table[Signal.PARAMETERS].value > 0


def test_of_a_sharded_tensor_a_rank_holds_its_part(nursery: Nursery, tmp_path: Path) -> None:
    tables = said(nursery, tmp_path, "shards")
    assert sum(table[Signal.PARAMETERS].value for table in tables) == PARAMETERS


def test_a_process_alone_stands_for_its_model_of_which_its_program_says_more(
    nursery: Nursery, tmp_path: Path
) -> None:
    (table,) = said(nursery, tmp_path, "plain", ranks=1)
    assert table[Signal.PARAMETERS_ONCE].value == PARAMETERS
    assert table[Signal.TOKEN_FLOPS].value == 6 * 50
    assert table[Signal.SAMPLE_FLOPS].value == 7e9
    assert table[Signal.NUMBERS].value == 4
