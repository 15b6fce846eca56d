"""What running jobs' records tell beside a trace's: the same, whatever they say in addition."""

import pytest

from rankscope_analyzers.steps.layout import Layout, layout
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed
from suite_jobs import fault, made, running

GRID = {"world": 16, "tensor": 2, "pipeline": 2, "timing": "wall"}


def both_ways(simulated):
    """Return the incidents as a trace's metadata have them, and as running ranks' groups do."""
    by_groups = Layout(simulated.meta["world_size"], 1, 1, 0, wall=True, by_groups=True)
    trace = feed.detect(FrameTable(simulated.records), layout(simulated.meta, 0))
    records = running(simulated)
    return trace.incidents, feed.detect(FrameTable(records), by_groups).incidents


def known(incidents):
    return [(one.kind, sorted(one.ranks), one.until is None) for one in incidents]


@pytest.mark.parametrize("dark", [-1, 2])
def test_half_of_the_ranks_are_slow_although_one_of_the_others_is_silent(dark):
    node = fault("data_loader", "node", 1.0, first=70, last=220)
    simulated = made(node, **GRID, dark=dark)
    trace, now = both_ways(simulated)
    assert known(now) == known(trace) == [("data_loader", list(range(8, 16)), True)]


def test_after_a_link_that_was_slow_from_the_start_recovers_no_other_one_is_slow():
    link = fault("network_link", "rank", 4.0, first=0, last=120)
    simulated = made(link, **GRID, steps=300, transfer=0.6)
    trace, now = both_ways(simulated)
    assert known(now) == known(trace)
    assert [(one.kind, one.until is None) for one in now] == [("network_link", False)]
    assert 13 in now[0].ranks
