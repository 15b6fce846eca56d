"""How much of a job its reports show: the last that is shown, and the first that is counted."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from job_reports import frame, link_errors
from rankscope_agent.contract.flight_dump import Frame
from rankscope_analyzers.findings.finding import Finding, RankLocation, Where
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.gpus.failure_rates import rates
from rankscope_analyzers.reports import (
    job_summary,
    markdown,
    stack_table,
    terminal,
    verdict_text,
)
from rankscope_analyzers.reports.report_page import data, runbook_text, sections, topology
from rankscope_analyzers.reports.verdict_text import rank_table
from rankscope_analyzers.text import name_lists
from simulated_jobs import Job


def found(number: int) -> Finding:
    return replace(link_errors(), summary=f"finding-{number:03}")


def incident(number: int = 0, where: Where | None = None) -> Incident:
    cause = found(number)
    return Incident(
        cause=cause,
        findings=(),
        where=where or Where(nodes=("gpu-0",)),
        severity="ticket",
        summary=cause.summary,
        action="look at it",
        runbook="RankscopeLinkErrors",
        confidence=0.6,
        cost=None,
        since_unix_seconds=None,
        until_unix_seconds=None,
        timing=None,
    )


def report(**changes) -> JobReport:
    values = {
        "job_id": "team/job",
        "verdict": None,
        "frame": None,
        "incidents": (),
        "observations": (),
        "locations": {},
        "unobserved": (),
        "sources": (),
        "made_unix_seconds": 1_760_000_500.0,
    }
    return JobReport(**{**values, **changes})


def named(text: str, word: str = "finding") -> int:
    return len(set(re.findall(rf"{word}-\d+", text)))


LISTS = {
    "incidents": (lambda n: {"incidents": tuple(map(incident, range(n)))}, "finding"),
    "observations": (lambda n: {"observations": tuple(map(found, range(n)))}, "finding"),
    "what is not observed": (
        lambda n: {"unobserved": tuple(f"source-{k}" for k in range(n))}, "source",
    ),
}  # fmt: skip
LIST = pytest.mark.parametrize(("many", "word"), LISTS.values(), ids=LISTS)


@LIST
@pytest.mark.parametrize("count", [200, 201])
def test_a_postmortem_has_200_rows_of_a_table(many, word, count):
    assert named(markdown.write([report(**many(count))]), word) == 200


@pytest.mark.parametrize(
    ("section", "changes", "word"),
    [
        (sections.incidents, LISTS["incidents"][0], "finding"),
        (sections.observations, LISTS["observations"][0], "finding"),
        (sections.unobserved, LISTS["what is not observed"][0], "source"),
        (sections.origin, lambda n: {"sources": tuple(f"url-{k}" for k in range(n))}, "url"),
    ],
    ids=["incidents", "observations", "what is not observed", "sources"],
)
def test_a_page_lists_fifty_of_a_kind_and_counts_the_others(section, changes, word):
    assert named(section(report(**changes(50))).markup, word) == 50
    page = section(report(**changes(52))).markup
    assert named(page, word) == 50
    assert "2 more" in page


@LIST
@pytest.mark.parametrize("count", [8, 9])
def test_a_terminal_shows_eight_of_a_kind(many, word, count, capsys):
    terminal.show(Console(width=80), [report(**many(count))])
    shown = named(capsys.readouterr().out, word)
    assert shown == (9 if count == 9 and "incidents" in many(1) else 8)


@pytest.mark.parametrize(
    ("ranks", "bins"),
    [(1, 240), (6_250, 240), (12_500, 120), (62_500, 24), (125_000, 24)],
)
def test_maps_of_a_page_have_a_million_and_a_half_cells_and_24_bins_at_least(ranks, bins):
    frames = [SimpleNamespace(frame=SimpleNamespace(ranks=range(ranks)))]
    assert data.bins(frames) == bins


@pytest.mark.parametrize(("slow", "marked"), [(16, 16), (17, 16)])
def test_sixteen_culprits_are_marked_beside_a_map(slow, marked):
    of_job = report(incidents=(incident(where=Where(ranks=tuple(range(slow)))),))
    assert len(data.job(of_job, 24)["culprits"]) == marked


def located(nodes: int, per_node: int = 1, nics: bool = False) -> JobReport:
    places = {
        rank: RankLocation(
            rank, f"node-{rank // per_node}", gpu=str(rank % per_node),
            nics=(f"mlx5_{rank % per_node}",) if nics else (),
        )
        for rank in range(nodes * per_node)
    }  # fmt: skip
    return report(locations=places)


def heights(of_job: JobReport) -> list[int]:
    figures = topology.figures(of_job)
    assert figures is not None
    return [int(height) for height in re.findall(r'viewBox="0 0 1100 (\d+)"', figures.markup)]


@pytest.mark.parametrize(("nodes", "height"), [(57, 23), (58, 42), (114, 42), (115, 61)])
def test_57_tiles_of_nodes_stand_in_a_line(nodes, height):
    assert heights(located(nodes)) == [height]


@pytest.mark.parametrize(
    ("gpus", "nics", "height"),
    [(1, False, 82), (8, False, 82), (9, False, 164), (16, False, 164), (17, False, 164),
     (8, True, 132), (16, True, 264)],
)  # fmt: skip
def test_a_node_is_as_high_as_its_lines_of_gpus_and_adapters(gpus, nics, height):
    assert heights(located(1, gpus, nics)) == [height]


def test_adapters_of_rails_have_a_line_for_how_many_nodes_they_serve():
    assert heights(located(2, 8, nics=True)) == [158, 158]


@pytest.mark.parametrize(("places", "rows"), [(12, 12), (13, 13), (14, 13)])
def test_twelve_places_where_ranks_stand_are_shown_and_the_others_counted(places, rows):
    frame = Frame("forward", "/site-packages/torch/nn/module.py", 7)
    groups = tuple(
        SimpleNamespace(ranks=(rank,), stack=(frame,), parting=None, suspect=False)
        for rank in range(places)
    )
    shown = stack_table.rows(SimpleNamespace(groups=groups))
    assert len(shown) == rows
    assert shown[0][1] == "forward nn/module.py:7"
    assert (f"{places - 12} more places" in shown[-1][1]) is (places > 12)


@pytest.mark.parametrize(("agents", "text"), [(8, "agent-7"), (9, "agent-7; and 1 more")])
def test_eight_agents_without_an_answer_are_named(agents, text):
    assert name_lists.shortened([f"agent-{n}" for n in range(agents)]).endswith(text)


def test_as_many_gpu_hours_as_were_published_would_bring_as_many_interruptions():
    """Llama 3: 16,384 GPUs for 54 days, of whose 419 interruptions 148 were faulty GPUs."""
    expected = {rate.name: rate.expected for rate in rates((), None, 16_384 * 54 * 24)}
    known = [number for number in expected.values() if number is not None]
    assert known == pytest.approx([419, 148, 91, 17])
    (first, *_) = rates((), None, None)
    assert first.published_per_thousand_gpu_hours == pytest.approx(0.01973, rel=1e-3)


@pytest.mark.parametrize(("idle", "shown"), [(18.0, ", idle 0.5%"), (17.9, "")])
def test_parts_of_half_a_per_cent_of_a_jobs_time_are_told(idle, shown):
    spent = {"productive": 3600.0 - idle, "idle": idle}
    told = job_summary.spent(SimpleNamespace(spent=spent))
    assert told == f"Of 1 GPU-hours: productive 99.5%{shown}."


def test_headings_of_a_runbook_are_two_levels_below_those_of_the_page(monkeypatch):
    monkeypatch.setattr(runbook_text.runbooks, "text", lambda name: "# A\n\n## B\n\n##### C\n")
    text = str(runbook_text.section(["RankscopeHang"]))
    assert re.findall(r"<(h\d)>(\w)", text) == [("h3", "A"), ("h4", "B"), ("h6", "C")]


@pytest.mark.parametrize(("waited", "named"), [(0.025, False), (0.026, True)])
def test_waiting_for_a_cpu_is_shown_beyond_a_fortieth_of_a_step(waited, named):
    rank = SimpleNamespace(
        rank=0, node="n1", step=1.0, data=0.1, compute=0.8, sync=0.1, cpu_wait=waited
    )
    assert ("CPU wait" in str(rank_table([rank], ()).title)) is named


def test_twelve_incidents_are_drawn_beside_a_map_with_nanoseconds_of_steps():
    of = frame(Job(ranks=2, steps=30))
    drawn = data.job(report(frame=of, incidents=tuple(map(incident, range(13)))), 24)["time"]
    assert len(drawn["incidents"]) == 12
    assert all(round(seconds, 9) == seconds for seconds in drawn["median"])
    assert any(round(seconds, 8) != seconds for seconds in drawn["median"])


def test_the_longest_step_of_a_rank_has_a_bar_of_24_characters():
    rank = SimpleNamespace(
        rank=0, node="n1", step=1.0, data=0.0, compute=1.0, sync=0.0, cpu_wait=0.0
    )
    assert len(verdict_text._bar(rank, 1.0)) == 24
