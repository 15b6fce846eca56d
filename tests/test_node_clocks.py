"""Nodes whose clocks are less than a minute apart: which rank ended or failed first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope_analyzers import layers
from rankscope_analyzers.fusion.job_reports import READS
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers import endings, log_failures
from rankscope_analyzers.layers.job_view import job_view
from rankscope_analyzers.layers.node_clocks import node_clocks

NOW = 1_760_000_300.0
LAST = NOW - 60.0
"""When the last step ended, by a clock that is right."""


def page(node, first, *, off=0.0, ended=1.0, failed=None, step=100, lasted=1.0, last=LAST):
    """Return the page of a node of two ranks, by its clock; moments are seconds after `LAST`."""
    lines = [f"rankscope_snapshot_timestamp_seconds {NOW + off}\n"]
    for rank in (first, first + 1):
        labels = f'job_id="job",rank="{rank}"'
        values = {
            "rank_info": 1,
            "rank_alive": 0,
            "rank_ended_timestamp_seconds": LAST + off + ended + 0.01 * rank,
        }
        if step is not None:
            values |= {
                "last_step": step,
                "last_step_seconds": lasted,
                "last_step_timestamp_seconds": last + off,
            }
        lines += [f"rankscope_{name}{{{labels}}} {value}\n" for name, value in values.items()]
    if failed is not None:
        labels = f'job_id="job",cause="gpu_oom",rank="{first}",own="true"'
        name = "rankscope_job_log_failure_timestamp_seconds"
        lines.append(f"{name}{{{labels}}} {LAST + off + failed}\n")
    return Page(node, NOW, "".join(lines))


def over(*pages):
    """Return which ranks ended first, and what is said of it."""
    job = job_view("job", {}, None)
    (found,) = endings.findings(from_pages(pages, READS), job)
    return found.where.ranks, found.summary


@pytest.mark.parametrize("off", [-50.0, -20.0, -3.0, -1.5, 1.5, 20.0])
@pytest.mark.parametrize("stepped", [True, False], ids=["by steps", "by pages"])
def test_ranks_of_a_node_whose_clock_is_off_are_not_called_the_first(off, stepped):
    step = 100 if stepped else None
    assert over(page("n1", 0, step=step), page("n2", 2, off=off, step=step))[0] == ()


@pytest.mark.parametrize("off", [-20.0, 0.0, 20.0])
def test_who_ended_first_is_told_by_the_last_step_that_all_ended(off):
    ranks, said = over(page("n1", 0, ended=5.0), page("n2", 2, off=off))
    assert ranks == (2, 3)
    assert said.endswith("3.97 s before the others")


def test_a_step_that_one_node_did_not_end_counts_as_that_much_later():
    died = page("n2", 2, off=30.0, step=99, lasted=10.0, last=LAST - 10.0)
    assert over(page("n1", 0, lasted=10.0, ended=5.0), died)[0] == (2, 3)


def test_clocks_that_are_apart_by_two_steps_may_be_hosts_that_run_ahead():
    pages = page("n1", 0, lasted=4.0, ended=6.0), page("n2", 2, lasted=4.0, last=LAST - 7.0)
    clocks = node_clocks(from_pages(pages, READS), "job", {"n1", "n2"})
    assert (clocks.ahead, clocks.unsure_seconds) == ({}, 7.0)
    assert over(*pages)[0] == ()
    assert over(page("n1", 0, lasted=4.0, ended=10.0), pages[1])[0] == (2, 3)


def test_a_node_that_took_longer_for_the_step_has_no_wrong_clock():
    saved = page("n1", 0, last=LAST + 20.0, lasted=21.0, ended=22.0)
    killed = page("n2", 2, ended=10.0)
    assert over(saved, killed)[0] == (2, 3)
    clocks = node_clocks(from_pages([saved, killed], READS), "job", {"n1", "n2"})
    assert (clocks.ahead, clocks.unsure_seconds) == ({}, 0.0)


def test_a_step_in_which_others_waited_for_a_slow_one_still_tells_of_clocks():
    pages = page("n1", 0, lasted=21.0, ended=5.0), page("n2", 2)
    late = replace(pages[1], body=pages[1].text.replace(f"{NOW}", f"{NOW - 15.0}"))
    assert over(pages[0], late)[0] == (2, 3)


def test_a_step_of_another_attempt_tells_nothing_of_clocks():
    ranks, _ = over(page("n1", 0), page("n2", 2, last=LAST - 300.0, ended=-299.0))
    assert ranks == (2, 3)


@pytest.mark.parametrize("off", [-20.0, 0.0, 20.0])
def test_which_rank_failed_first_is_told_by_one_clock(off):
    pages = page("n1", 0, failed=3.0), page("n2", 2, off=off, failed=5.0)
    seen = from_pages(pages, log_failures.READS)
    (found,) = log_failures.findings(seen, job_view("job", {}, None))
    assert (found.where.ranks, found.until_unix_seconds) == ((0,), None)
    assert "; node n2 followed" in found.summary


def test_the_time_of_a_page_does_not_show_that_pods_were_seen():
    bare = from_pages([Page("n1", NOW, f"rankscope_snapshot_timestamp_seconds {NOW}\n")], READS)
    assert set().union(*layers.nodes_seen(bare).values()) == set()
