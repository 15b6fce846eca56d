"""World size and ended ranks of a job that several nodes report, for `rankscope verify`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from rankscope_analyzers.verification import evidence as job_evidence
from rankscope_analyzers.verification.evidence import Settings
from rankscope_analyzers.verification.rank_criteria import _logs_command, world_size

NOW = 1_760_000_300.0
LAST = NOW - 20.0
READS = (*job_reports.READS, *job_evidence.READS)
SETTINGS = Settings(None, None, 0.3, "auto", frozenset())
ORDERS = pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])


def page(node: str, alive: list[int], size: str, last_step: float = LAST) -> Page:
    """Return a node's page: for each rank, whether it lives; all name the same world size."""
    lines = []
    for rank, lives in enumerate(alive):
        labels = f'job_id="job",rank="{rank}"'
        lines += [
            f'rankscope_rank_info{{{labels},node="{node}",world_size="{size}"}} 1\n',
            f"rankscope_rank_alive{{{labels}}} {lives}\n",
            f"rankscope_last_step_timestamp_seconds{{{labels}}} {last_step}\n",
        ]
    return Page(node, NOW, "".join(lines))


def seen(*pages: Page) -> job_evidence.Evidence:
    observed = from_pages(sorted(pages, key=lambda one: one.node), READS)
    timing = TimingResults((), {}, ())
    (report,) = job_reports.reports(timing, JobEvidence(observed), NOW)
    return job_evidence.evidence(report, observed, SETTINGS, None, ())


@ORDERS
def test_a_job_that_moved_is_as_large_as_its_new_nodes_say(nodes):
    """The node it was on was lost: what it last reported was that all processes live."""
    old, new = nodes
    lost = replace(page(old, [1, 1], "2", LAST - 200.0), time=NOW - 190.0)
    found = seen(lost, page(new, [1, 1, 1, 1], "4"))
    assert (found.sizes(), found.ended) == ({4}, frozenset())
    assert world_size(found).status == "met"


@ORDERS
def test_a_rank_has_ended_where_the_job_moved_to(nodes):
    old, new = nodes
    lost = replace(page(old, [1, 1], "2", LAST - 200.0), time=NOW - 190.0)
    found = seen(lost, page(new, [1, 0, 1, 1], "4"))
    assert (found.sizes(), found.ended) == ({4}, {1})
    assert world_size(found).status == "broken"
    assert world_size(found).remedy == "rankscope logs --from DIR --errors says why"
    assert _logs_command("ml/llm") == "rankscope logs ml/llm --errors"


@ORDERS
def test_ended_processes_of_an_earlier_attempt_neither_count_nor_are_missed(nodes):
    old, new = nodes
    found = seen(page(old, [0, 0], "2", LAST - 200.0), page(new, [1, 1, 1, 1], "4"))
    assert (found.sizes(), found.ended) == ({4}, frozenset())


@ORDERS
@pytest.mark.parametrize(("alive", "age"), [(0, 0.0), (1, 190.0)], ids=["ended", "lost"])
def test_ranks_beyond_the_size_of_all_that_live_are_those_of_an_earlier_attempt(nodes, alive, age):
    """The job was on both nodes and goes on with half of its ranks on one."""
    old, new = nodes
    before = replace(page(old, [alive] * 4, "4", LAST - 200.0), time=NOW - age)
    found = seen(before, page(new, [1, 1], "2"))
    assert (found.sizes(), found.ranks, found.ended) == ({2}, {0, 1}, frozenset())
    assert world_size(found).status == "met"


@ORDERS
def test_a_rank_of_an_unknown_size_may_be_beyond_those_of_others(nodes):
    found = seen(page(nodes[0], [0] * 4, "4", LAST - 200.0), page(nodes[1], [1, 1], ""))
    assert (found.ranks, found.ended) == ({0, 1, 2, 3}, {2, 3})


def test_a_rank_that_only_its_gpu_is_known_of_may_be_another_jobs():
    """The kubelet gave it a GPU; whether it has ended is not known."""
    given = 'rankscope_gpu_allocation_info{job_id="job",rank="7",uuid="GPU-7",gpu="7"} 1\n'
    found = seen(page("n1", [1, 1], "2"), Page("n2", NOW, given))
    assert found.ranks == {0, 1, 7}
    assert world_size(found).status == "broken"


@ORDERS
def test_an_attempt_that_lives_on_is_a_second_size(nodes):
    old, new = nodes
    found = seen(page(old, [1, 1], "2", LAST - 200.0), page(new, [1, 1, 1, 1], "4"))
    assert found.sizes() == {2, 4}
    assert world_size(found).status == "broken"


@pytest.mark.parametrize(("seconds", "sizes"), [(45.0, {2, 4}), (46.0, {4})])
def test_a_node_reports_still_if_it_did_within_a_scrape_interval(seconds, sizes):
    other = replace(page("n1", [1, 1], "2"), time=NOW - seconds)
    assert seen(other, page("n2", [1, 1, 1, 1], "4")).sizes() == sizes


@pytest.mark.parametrize("size", ["", "0", "-4", "four", "٤", "9" * 5000])
def test_a_size_that_is_no_number_of_ranks_is_not_one(size):
    assert seen(page("n1", [1, 1], size)).sizes() == frozenset()
