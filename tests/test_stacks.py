"""Stacks of ranks, grouped: who stands elsewhere than most."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rankscope_agent.contract.flight_dump import Frame
from rankscope_analyzers.profiles.stacks import group
from rankscope_analyzers.reports import stack_table

MOST_GROUPS = 12
MAIN = Frame("main", "/app/train.py", 90)
STEP = Frame("step", "/app/train.py", 40)
REDUCE = Frame("all_reduce", "/venv/torch/distributed/distributed_c10d.py", 3245)
LOAD = Frame("__next__", "/venv/torch/utils/data/dataloader.py", 730)
NEXT = Frame("main", "/app/train.py", 88)
WAITING, LOADING = (REDUCE, STEP, MAIN), (LOAD, NEXT)


def test_the_rank_that_stands_elsewhere_is_the_suspect_and_stands_first():
    grouped = group({rank: LOADING if rank == 5 else WAITING for rank in range(8)})
    first, second = grouped.groups
    assert (first.ranks, first.suspect, first.stack) == ((5,), True, LOADING)
    assert (second.ranks, second.suspect) == ((0, 1, 2, 3, 4, 6, 7), False)


@pytest.mark.parametrize(
    ("stack", "parting"),
    [
        (LOADING, NEXT),
        ((LOAD, STEP, MAIN), LOAD),
        ((LOAD, REDUCE, STEP, MAIN), LOAD),
        ((STEP, MAIN), None),
        ((), None),
    ],
)
def test_where_ranks_part_is_the_outermost_frame_that_differs(stack, parting):
    grouped = group({0: WAITING, 1: WAITING, 2: stack})
    assert grouped.groups[0].parting == parting
    assert grouped.groups[0].suspect
    assert grouped.groups[1].parting is None


def test_another_line_of_the_same_function_is_another_place():
    later = Frame(REDUCE.function, REDUCE.file, REDUCE.line + 3)
    assert len(group({0: (REDUCE,), 1: (REDUCE,), 2: (later,)}).groups) == 2


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_of_two_halves_neither_is_suspected(ranks):
    grouped = group({rank: WAITING if rank % 2 else LOADING for rank in range(ranks)})
    assert not any(one.suspect for one in grouped.groups)


def test_where_all_stand_in_one_place_nobody_is_suspected():
    assert not group(dict.fromkeys(range(4), WAITING)).groups[0].suspect


def test_ranks_without_a_stack_are_named_and_count_for_no_majority():
    grouped = group({0: WAITING, 1: WAITING, 2: LOADING}, range(8))
    assert grouped.silent == (3, 4, 5, 6, 7)
    assert grouped.groups[0].ranks == (2,)


STACKS = st.dictionaries(
    st.integers(0, 40), st.sampled_from([WAITING, LOADING, (STEP, MAIN), ()]), max_size=40
)


@given(STACKS)
def test_every_rank_is_in_one_group_and_suspects_are_fewer_than_the_others(stacks):
    grouped = group(stacks)
    ranks = [rank for one in grouped.groups for rank in one.ranks]
    assert sorted(ranks) == sorted(stacks)
    suspects = [rank for one in grouped.groups if one.suspect for rank in one.ranks]
    assert 2 * len(suspects) < max(1, len(stacks))
    assert group(dict(reversed(stacks.items()))) == grouped


def drawn(grouped, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(stack_table.table(grouped))
    return console.file.getvalue()


def test_the_table_names_the_suspect_and_where_it_parts_within_80_columns():
    text = drawn(group({rank: LOADING if rank == 5 else WAITING for rank in range(8)}, range(9)))
    assert text.startswith("Rank 5 stands elsewhere than most ranks")
    assert "train.py:88" in text
    assert "0-4, 6, 7" in text
    assert "There is no stack for rank 8." in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.index("suspect") < text.index("0-4, 6, 7")


@pytest.mark.parametrize(
    ("stacks", "title"),
    [
        ({}, "No stack is known"),
        ({0: WAITING, 1: WAITING}, "All ranks with known stacks are in the same place"),
        ({0: WAITING, 1: LOADING}, "No stack is that of most ranks"),
        ({0: WAITING, 1: WAITING, 2: WAITING, 3: (), 4: LOADING}, "Ranks 3, 4 stand elsewhere"),
    ],
)
def test_the_title_says_what_the_stacks_show(stacks, title):
    assert stack_table.title(group(stacks)).startswith(title)


def test_a_thousand_places_are_a_dozen_rows_and_one():
    stacks = {rank: (Frame("f", "/app/x.py", rank),) for rank in range(1000)}
    found = stack_table.rows(group(stacks))
    assert len(found) == MOST_GROUPS + 1
    assert found[-1][1] == "988 more places"


def test_names_of_functions_are_shown_harmlessly():
    hostile = (Frame("\x1b[2Jf", "/app/[bold]x.py", 1),)
    text = drawn(group({0: hostile, 1: WAITING, 2: WAITING}))
    assert "\x1b" not in text
    assert "[bold]x.py" in text.replace("\n", "")
