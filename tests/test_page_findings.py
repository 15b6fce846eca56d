"""What pages alone lead to is found once a look, and anew for other series, places and jobs."""

from __future__ import annotations

from rankscope_agent.contract.metrics import agent
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers.job_view import job_view
from rankscope_analyzers.layers.page_findings import PageFindings
from rankscope_analyzers.layers.rank_locations import RankLocations

NODES = ("n1", "n2")


def series():
    text = f"{agent.SNAPSHOT_TIMESTAMP.name} 100\n"
    return from_pages([Page(node, 100.0, text) for node in NODES], (agent.SNAPSHOT_TIMESTAMP,))


def view(job="team/job", uuid="GPU-1"):
    return job_view(job, {0: RankLocation(0, "n1", uuid=uuid)})


def test_the_same_series_are_compared_once_however_often_they_are_put_together():
    asked = []

    def find(observed, job):
        asked.append((job.job_id, job.locations[0].uuid, sorted(observed.nodes)))
        return ()

    known, pages = PageFindings(), series()
    for _ in range(3):
        known.of(find, pages.on(NODES), view())
    assert asked == [("team/job", "GPU-1", ["n1", "n2"])]
    known.of(find, pages.on(NODES), view(uuid="GPU-2"))
    known.of(find, pages.on(["n1"]), view(uuid="GPU-2"))
    known.of(find, pages.on(["n1"]), view("team/other"))
    assert asked[1:] == [
        ("team/job", "GPU-2", ["n1", "n2"]),
        ("team/job", "GPU-2", ["n1"]),
        ("team/other", "GPU-1", ["n1"]),
    ]
    known.of(find, series().on(["n1"]), view("team/other"))
    assert len(asked) == 5


def test_where_ranks_run_is_found_out_once_a_look():
    looks, known = [], PageFindings()

    def locate(observed):
        looks.append(observed)
        return RankLocations({})

    first, second = series(), series()
    for observed in (first, first, second):
        known.locations(locate, observed)
    assert len(looks) == 2
    assert looks[0] is first
    assert looks[1] is second
