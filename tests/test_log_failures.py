"""Which rank failed first over all nodes, from what each node's agent read in its logs."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.failures import causes
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers import log_failures
from rankscope_analyzers.layers.job_view import job_view

NOW = 1_800_000_000.0


def failed(cause: str, rank: str, ago: float, own: str = "true") -> str:
    labels = f'job_id="team/job",cause="{cause}",rank="{rank}",own="{own}"'
    return f"rankscope_job_log_failure_timestamp_seconds{{{labels}}} {NOW - ago}\n"


def stepped(rank: int, ago: float) -> str:
    labels = f'job_id="team/job",rank="{rank}"'
    return f"rankscope_last_step_timestamp_seconds{{{labels}}} {NOW - ago}\n"


def found(**pages: str):
    observed = from_pages(
        [Page(node, NOW, text) for node, text in pages.items()], log_failures.READS
    )
    return list(log_failures.findings(observed, job_view("team/job", {}, None)))


def test_the_earliest_of_all_nodes_was_first():
    (one,) = found(n1=failed("cuda_error", "3", 60), n2=failed("gpu_oom", "9", 62))
    assert (one.where.ranks, one.where.nodes) == ((9,), ("n2",))
    assert one.summary.startswith("rank 9 (node n2) failed first, at ")
    assert one.summary.endswith("; node n1 followed")
    assert one.action == causes.ACTIONS[causes.GPU_OOM]


@pytest.mark.parametrize(
    ("cause", "owner"), [("gpu_oom", "ml"), ("storage", "platform"), ("nccl_error", "network")]
)
def test_who_acts_depends_on_the_cause(cause, owner):
    (one,) = found(n1=failed(cause, "3", 60))
    assert one.owner == owner


def test_a_victim_that_gave_up_earlier_is_not_blamed():
    (one,) = found(n1=failed("unknown", "", 70, own="false"), n2=failed("user_exception", "9", 60))
    assert one.where.ranks == (9,)


def test_victims_alone_are_told_as_such():
    (one,) = found(n1=failed("collective_timeout", "", 70, own="false"))
    assert one.where.ranks == ()
    assert "for others that went away" in one.summary


def test_only_the_newest_attempt_counts():
    (one,) = found(n1=failed("gpu_oom", "3", 900) + failed("storage", "1", 60))
    assert one.where.ranks == (1,)


@pytest.mark.parametrize(("earlier", "first"), [(119, 3), (120, 1)])
def test_failures_within_two_minutes_are_of_one_attempt(earlier, first):
    (one,) = found(n1=failed("gpu_oom", "3", 60 + earlier) + failed("storage", "1", 60))
    assert one.where.ranks == (first,)


@pytest.mark.parametrize(("ago", "told"), [(3500, 1), (3700, 0)])
def test_a_failure_of_long_ago_is_no_news(ago, told):
    assert len(found(n1=failed("gpu_oom", "3", ago))) == told


def test_a_job_that_went_on_is_not_failing():
    (one,) = found(n1=failed("gpu_oom", "3", 300) + stepped(0, 5))
    assert one.until_unix_seconds == NOW - 300
    (still,) = found(n1=failed("gpu_oom", "3", 300) + stepped(0, 301))
    assert still.until_unix_seconds is None


@pytest.mark.parametrize(("later", "over"), [(10, False), (11, True)])
def test_a_step_that_ends_ten_seconds_after_a_failure_was_under_way(later, over):
    (one,) = found(n1=failed("gpu_oom", "3", 300) + stepped(0, 300 - later))
    assert (one.until_unix_seconds is not None) is over
