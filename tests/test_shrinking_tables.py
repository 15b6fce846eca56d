"""Tables on narrow terminals: names stay whole, and optional columns are left out."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from rich.console import Console

from job_reports import SLOW_EIGHT, frame, report
from rankscope_analyzers.reports import job_table, terminal
from rankscope_analyzers.reports.verdict_text import rank_table
from rankscope_analyzers.stragglers.verdict import RankTimes

UUID = "5318668a-7220-4090-9b1f-51f6a4f5a3c7"


def printed(what, width, **more):
    console = Console(file=io.StringIO(), width=width, no_color=True, highlight=False)
    console.print(what, **more)
    return console.file.getvalue()


def job(name, **more):
    known = {"step_seconds": 0.0337, "lost_fraction": 0.734, "kind": "thermal_slowdown"}
    culprit = "rank 13, node gpu-node-07, GPU 1"
    return job_table.JobRow(name, "slow", **(known | {"culprit": culprit, "summary": ""} | more))


@pytest.mark.parametrize("width", [40, 80])
def test_a_jobs_name_and_culprit_stay_in_one_line(width):
    shown = printed(job_table.table([job(UUID)]), width, crop=False)
    (row,) = [line for line in shown.splitlines() if UUID in line]
    assert "rank 13, node gpu-node-07, GPU 1" in row
    assert "thermal_slowdown" in row


def test_a_job_of_a_very_long_name_takes_a_bounded_part_of_the_others_rows():
    shown = printed(job_table.table([job("x" * 5000), job(UUID)]), 80, crop=False)
    assert max(map(len, shown.splitlines())) < 220
    assert shown.count("x") == 5000


def ranks():
    return [RankTimes(rank, "gpu-node-07", 0.0455, 0.0128, 0.0331, 0.1234, 0.0) for rank in (8, 9)]


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (100, "rank node step data compute sync data ▒ compute █ sync ░"),
        (60, "rank node step data compute sync"),
        (40, "rank node step compute"),
        (26, "rank node step"),
    ],
)
def test_numbers_of_ranks_are_left_out_before_ranks_and_nodes(width, heads):
    lines = printed(rank_table(ranks(), (9,)), width).splitlines()
    above = next(number for number, line in enumerate(lines) if line.split()[:1] == ["rank"])
    assert " ".join(lines[above].split()) == heads
    assert [line.split()[0] for line in lines[above + 1 :] if "45.5 ms" in line] == ["8", "9"]
    assert max(map(len, lines)) <= width


def test_evidence_is_readable_in_forty_columns():
    shown = printed(terminal.render(report(frame(SLOW_EIGHT))), 40)
    lines = [line.split() for line in shown.splitlines()]
    assert not [one for one, two in pairwise(lines) if len(one) == len(two) == 1 == len(one[0])]
    assert "what it is" not in shown
