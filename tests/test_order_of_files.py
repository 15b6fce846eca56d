"""The files that begin first are files that there are."""

from __future__ import annotations

from pathlib import Path

import conftest


def test_each_file_that_begins_first_is_a_file_of_tests():
    files = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    assert set(conftest.LONGEST_FIRST) <= files
    assert len(set(conftest.LONGEST_FIRST)) == len(conftest.LONGEST_FIRST)
