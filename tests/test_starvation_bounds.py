"""The last that is still taken and the first that is not, of each limit on waiting ranks."""

from __future__ import annotations

import os

import pytest

from listed_names import Listing
from rankscope_agent.sources.collector import NoData
from test_starvation import S, node, starved

__all__ = ["node"]


def test_a_rank_has_64_workers_that_are_watched(node):
    node.rank(0, 40)
    node.thread(40, 40, S, 0)
    for worker in range(50, 115):
        node.thread(worker, worker, S, S, parent=40)
    node.look()
    followed = node.collector._followed["team/job", 0]
    assert len(followed.workers) == 64


def test_64_ranks_are_watched(node):
    for rank in range(65):
        node.rank(rank, 100 + rank)
        node.thread(100 + rank, 100 + rank, S, 0)
    assert len([key for key in node.look() if key[0] == starved(0)[0]]) == 64


@pytest.mark.parametrize(("before", "seen"), [(1 << 20, True), ((1 << 20) + 10, False)])
def test_a_mebibyte_is_read_of_the_table_of_locks(node, before, seen):
    node.rank(0, 40)
    node.thread(40, 40, S, 0)
    path = node.procfs / "locks"
    path.write_text(path.read_text().strip().rjust(before, "\n"))
    if seen:
        assert starved(0) in node.look()
        return
    with pytest.raises(NoData, match="another PID namespace"):
        node.look()


def test_65536_processes_are_looked_at(node, monkeypatch):
    looked_at = []
    monkeypatch.setattr(os, "scandir", lambda root: Listing(map(str, range(70_000))))
    monkeypatch.setattr(
        "rankscope_agent.sources.starvation.collector.read_text",
        lambda path: looked_at.append(path) or "",
    )
    node.collector._children({1})
    assert len(looked_at) == 65_536


def test_a_node_without_ranks_in_sight_is_looked_at_again_after_five_seconds(node):
    with pytest.raises(NoData):
        node.look()
    node.rank(0, 40)
    node.thread(40, 40, S, 0)
    with pytest.raises(NoData):
        node.look(4.9)
    assert starved(0) in node.look(0.2)
    node.rank(1, 41)
    node.thread(41, 41, S, 0)
    assert starved(1) not in node.look(29.8)
    assert starved(1) in node.look(0.3)
