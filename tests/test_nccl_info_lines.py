"""NCCL's INFO vocabulary: what is selected is read, and what is read is selected."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.nccl.info_lines import INFO_LINES, InfoLine, info_line
from rankscope_agent.contract.nccl.lines import INFO, records

EXAMPLES = {
    rb"[nN]etwork ": b"Network ",
    rb"\d+ (?:\w+ )?channels": b"16 coll channels",
    rb"\d+(?: (?:coll channels|: |-> )|\[[0-9a-f]+\] -> )": b"12 coll channels",
}


def name(line: InfoLine) -> str:
    return (line.begins or line.goes_on).decode()


@pytest.mark.parametrize("line", INFO_LINES, ids=name)
def test_each_kind_of_line_is_selected_and_known_by_its_beginning(line):
    text = line.begins + EXAMPLES.get(line.goes_on, line.goes_on)
    (found,) = records(b"NCCL INFO " + text + b" x\n")
    assert (found.lastindex, found[INFO]) == (INFO, text + b" x")
    assert info_line(text) is line
    assert (line.read is not None) == (line.subject == "process")


@pytest.mark.parametrize("text", [b"Usin", b"Init", b"Initialised", b"NCC"])
def test_what_is_left_of_a_torn_line_has_no_reader(text):
    found = info_line(text)
    assert found is None or found.read is None
