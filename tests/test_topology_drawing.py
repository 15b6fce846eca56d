"""Which nodes of a job are drawn in full, and which as a tile."""

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
