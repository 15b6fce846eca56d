"""A node whose client waits longer for a file system than other nodes' do is named."""

from __future__ import annotations

import pytest

from faulty_series import NODES, VIEW, client, observed
from rankscope_analyzers.layers import storage_clients


def said(*readings):
    return list(storage_clients.findings(observed(*readings), VIEW))


def test_a_node_that_waits_twice_as_long_as_the_other_is_named_with_both_times():
    (found,) = said(*client(10.0, 100.0), *client(4.0, 100.0, NODES[0]))
    assert found.where.nodes == (NODES[1],)
    assert found.summary == (
        "lustre file system scratch: a read operation takes 100 ms, on other nodes 40 ms"
    )


@pytest.mark.parametrize(
    ("here", "there", "is_told"),
    [(10.0, 5.0, True), (10.0, 5.1, False), (5.0, 1.0, True), (4.9, 1.0, False)],
)
def test_what_is_slow_for_all_or_quick_is_no_node_s(here, there, is_told):
    found = said(*client(here, 100.0), *client(there, 100.0, NODES[0]))
    assert bool(found) is is_told


def test_a_few_operations_make_no_mean():
    assert said(*client(10.0, 19.0)) == []
    assert len(said(*client(10.0, 20.0))) == 1


def test_a_client_that_times_nothing_is_told_of_by_nobody():
    assert said(client(10.0, 100.0)[0]) == []
