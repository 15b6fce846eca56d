"""Which nodes of a job are drawn in full, and which as a tile."""

import re
from itertools import pairwise

import pytest

from job_reports import frame, report
from rankscope_analyzers.reports.report_page import topology
from simulated_jobs import Fault, Job


def drawn(nodes, *slow, per_node=2):
    job = Job(
        ranks=nodes * per_node,
        steps=60,
        ranks_per_node=per_node,
        faults=(Fault("compute", slow, 0.6),) if slow else (),
    )
    return topology.figures(report(frame(job))).markup


@pytest.mark.parametrize(("nodes", "tiles"), [(4, 0), (5, 5)])
def test_up_to_four_nodes_are_drawn_in_full(nodes, tiles):
    page = drawn(nodes, 1)
    assert page.count("<title>node-") == tiles


@pytest.mark.parametrize(
    ("slow", "said"), [((1, 3), None), ((1, 3, 5), "1 more of its nodes are marked above.")]
)
def test_two_nodes_with_culprits_are_drawn_in_full_and_the_rest_is_marked(slow, said):
    page = drawn(8, *slow)
    assert ("more of its nodes are marked above" in page) is (said is not None)
    assert said is None or said in page


def boxes(page, drawing=0):
    """Return the width of a drawing, and left edge, top and width of the rectangles in it."""
    svg = page.split("<svg")[drawing + 1].partition("</svg>")[0]
    rectangles = [
        tuple(
            float(dict(re.findall(r'([a-z]+)="([^"]*)"', one))[key]) for key in ("x", "y", "width")
        )
        for one in re.findall(r"<rect[^>]*>", svg)
    ]
    return float(re.search(r'viewBox="0 0 (\d+)', svg)[1]), rectangles


def test_a_drawing_fits_a_screen_and_uses_most_of_it():
    for page in (drawn(1, 1, per_node=8), drawn(120)):
        width, rectangles = boxes(page)
        right = max(x + wide for x, _, wide in rectangles)
        assert 1000 < width < 1280
        assert 0.9 * width < right <= width
        assert min(x for x, _, _ in rectangles) >= 0


def test_eight_gpus_stand_in_a_row_and_none_covers_its_neighbour():
    _, rectangles = boxes(drawn(1, 1, per_node=16))
    rows = {}
    for x, y, wide in rectangles:
        rows.setdefault(y, []).append((x, wide))
    lines = [sorted(row) for row in rows.values() if len(row) > 1]
    assert {len(row) for row in lines} == {8}
    for row in lines:
        for (x, wide), (following, _) in pairwise(row):
            assert 4 < following - (x + wide) < 24


def test_tiles_of_nodes_are_large_enough_to_point_at_and_leave_a_gap():
    _, rectangles = boxes(drawn(120))
    first = sorted(x for x, y, _ in rectangles if y == min(y for _, y, _ in rectangles))
    step = first[1] - first[0]
    wide = rectangles[0][2]
    assert len(first) > 50
    assert 10 < wide < 24
    assert 2 < step - wide < 8
