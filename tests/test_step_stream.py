"""Step records as JSON in pieces."""

from __future__ import annotations

import json
import math

from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.serving.step_stream import steps_json

ROWS_PER_PIECE = 500


def row(step, seconds=0.5):
    return ("job", step, 0, "node", 0, 1.5, seconds, None, 0.1, 0.2, 0, 0, 0, 0, None, 0, "wall")


def read(rows, **limits):
    return json.loads(b"".join(steps_json(rows, "node-1", **limits)))


def test_rows_come_in_the_columns_of_the_contract():
    answer = read([row(1), row(2)])
    assert answer["node"] == "node-1"
    assert tuple(answer["columns"]) == STEP_COLUMNS
    assert [tuple(found) for found in answer["rows"]] == [row(1), row(2)]
    assert answer["truncated"] is False


def test_no_rows_are_an_empty_list():
    assert read([])["rows"] == []


def test_what_json_cannot_say_becomes_null():
    answer = read([row(1, math.nan), row(2, math.inf), row(3, 1.0)])
    assert [found[6] for found in answer["rows"]] == [None, None, 1.0]


def test_rows_beyond_the_cap_are_left_out_and_the_answer_says_so():
    rows = [row(step) for step in range(10)]
    assert read(rows, max_rows=10)["truncated"] is False
    cut = read(rows, max_rows=9)
    assert cut["truncated"] is True
    assert [found[1] for found in cut["rows"]] == list(range(9))


def test_pieces_join_wherever_they_are_cut():
    for count in (ROWS_PER_PIECE - 1, ROWS_PER_PIECE, ROWS_PER_PIECE + 1, 3 * ROWS_PER_PIECE):
        assert len(read([row(step) for step in range(count)])["rows"]) == count


def test_rows_are_read_as_they_are_sent_not_before():
    read_so_far = []

    def rows():
        for step in range(100 * ROWS_PER_PIECE):
            read_so_far.append(step)
            yield row(step)

    pieces = steps_json(rows(), "node-1")
    next(pieces)
    next(pieces)
    assert len(read_so_far) == ROWS_PER_PIECE
