"""Collectives and stacks of ranks that stand still: who is named by them, and what reports show."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from hanging_jobs import reported_with, standing, training_page
from rankscope_agent.contract.flight_dump import Frame
from rankscope_analyzers.reports import html, job_json, job_summary, terminal


def test_the_rank_that_never_entered_is_named_with_the_collective():
    report = reported_with(standing(2, age=69.0), training_page(70.0))
    assert report.incidents[0].where.ranks == (2,)
    assert job_summary.headline(report).endswith(
        "; rank 2 has not entered all_reduce 5 of default_pg, where 3 ranks wait."
    )


def test_a_job_that_goes_on_launching_collectives_is_not_hung():
    report = reported_with(standing(2, age=20.0), training_page(700.0))
    assert [one for one in report.incidents if one.stands] == []


def test_a_node_whose_clock_is_ahead_hides_no_launches_of_the_others():
    going_on = standing(2, age=20.0)["job"]
    going_on[2] = replace(
        going_on[2],
        taken_unix_seconds=going_on[2].taken_unix_seconds + 900.0,
        groups=(),
        recorder="it has no worker server",
    )
    report = reported_with({"job": going_on}, training_page(700.0))
    assert [one for one in report.incidents if one.stands] == []


ALL_REDUCE = Frame("all_reduce", "/x/torch/distributed/distributed_c10d.py", 3252)
PROBE_FRAME = Frame("wait", "/x/rankscope_probe.py", 896)
FETCH = Frame("fetch", "/home/me/train.py", 12)


def with_stacks(late):
    """Return where ranks stand with their stacks, which the late one has elsewhere."""
    return {
        "job": [
            replace(one, stack=(FETCH,) if one.rank == late else (PROBE_FRAME, ALL_REDUCE))
            for one in standing(late)["job"]
        ]
    }


def test_stacks_are_a_table_in_every_report_and_the_one_elsewhere_comes_first():
    report = reported_with(with_stacks(2), training_page(70.0))
    console = Console(width=100, record=True, file=io.StringIO())
    terminal.show(console, [report])
    text = console.export_text()
    assert "Rank 2 stands elsewhere than most ranks" in text
    assert "fetch me/train.py:12" in text
    assert "rankscope_probe.py" not in text
    first, second = job_json.as_object(report)["stacks"]
    assert (first["ranks"], first["suspect"]) == ([2], True)
    assert first["frames"] == [{"function": "fetch", "file": "/home/me/train.py", "line": 12}]
    assert (second["ranks"], second["suspect"]) == ([0, 1, 3], False)
    page = html.write([report])
    assert "Where ranks stand" in page
    assert "<td>fetch me/train.py:12</td>" in page


def test_a_job_that_makes_steps_has_no_table_of_stacks():
    report = reported_with(with_stacks(2), training_page(30.0))
    assert report.stacks is None
    assert job_json.as_object(report)["stacks"] is None
    assert "Where ranks stand" not in html.write([report])
