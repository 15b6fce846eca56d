import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from job_reports import SLOW_EIGHT, frame, incident, locations, report
from rankscope_analyzers.findings.finding import Evidence, Where
from rankscope_analyzers.reports import rank_series, verdict_text
from rankscope_analyzers.reports import terminal as terminal_report
from rankscope_analyzers.reports.verdict_text import rank_table
from rankscope_analyzers.stragglers.verdict import RankTimes
from rankscope_analyzers.text.wording import duration
from simulated_jobs import Fault, Job

HOSTILE = "[/bold][link=http://evil.example]x\x1b[2J\x1b]0;owned\x07\u202e"


LONG = "ip-10-0-12-34.eu-central-1.compute.internal"


@pytest.mark.parametrize("node", ["vm", "gpu-node-07", LONG])
@pytest.mark.parametrize("waits", [None, 0.0, 0.02])
def test_a_number_and_its_unit_stay_in_one_line_of_a_screen_of_80_columns(node, waits):
    times = [
        RankTimes(rank, node, 0.0455 * scale, 0.0128, 0.0331 * scale, 0.1234, waits)
        for rank, scale in enumerate((1.0, 4.0, 0.5, 100.0))
    ]
    screen = io.StringIO()
    Console(file=screen, width=80, no_color=True).print(rank_table(times, (1,)))
    shown = screen.getvalue()
    for one in times:
        for seconds in (one.step, one.data, one.compute, one.sync):
            assert duration(seconds) in shown
    assert max(map(len, shown.splitlines())) <= 80
    legend = "data ▒ compute █ CPU wait ▓ sync ░" if waits else "data ▒ compute █ sync ░"
    assert legend in shown


def text(made, width=100, terminal=False):
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=terminal,
        no_color=not terminal,
        highlight=False,
    )
    terminal_report.show(console, [made])
    return console.file.getvalue()


@pytest.fixture(scope="module")
def slow():
    return report(frame(SLOW_EIGHT))


def test_it_says_who_why_since_when_what_it_costs_how_sure_and_what_to_do(slow):
    said = " ".join(text(slow, width=500).split())
    assert "hw_thermal_slowdown: rank 5 (node node-00000, GPU 5) computes 1.60x" in said
    assert "since 2025-10-09" in said
    assert "It costs 33% of every step, 0.328 GPU-hours so far." in said
    assert "Confidence 0.93, from GPU counters and step times." in said
    assert (
        "Drain the node and hand it to hardware."
        " See `rankscope runbook RankscopeGpuThermalSlowdown`." in said
    )
    assert "Not seen: no DCGM profiling counters on any node." in said
    assert "Also seen, harmless so far: mlx5_2 on node-00000 counts 3 symbol errors" in said


def test_the_evidence_of_all_layers_is_one_table(slow):
    lines = text(slow).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("Evidence of all layers"))
    table = "\n".join(lines[start : start + 10])
    assert "GPU counters  rankscope_gpu_clock_hertz" in table
    assert "1.2 GHz" in table
    assert "step times    compute_seconds" in table


# The shortest that stands above its meaning, that of a hang, and the longest of any finding.
@pytest.mark.parametrize(
    "name",
    [
        "x" * 28,
        "x" * 29,
        "rankscope_rank_last_step_timestamp_seconds",
        "rankscope_checkpoint_last_success_timestamp_seconds",
    ],
)
def test_the_name_of_a_metric_stays_whole_in_eighty_columns(slow, name):
    (first,) = slow.incidents
    evidence = Evidence(name, 91.3, 0.0426, "seconds", "time without a step")
    cause = replace(first.cause, evidence=(evidence, replace(evidence, meaning="")))
    shown = text(replace(slow, incidents=(replace(first, cause=cause),)), width=80)
    lines = [line for line in shown.splitlines() if name in line.split()]
    assert len(lines) == 2, shown
    assert all("91.30 s" in line and "42.6 ms" in line for line in lines)
    assert max(map(len, shown.splitlines())) <= 80
    beside = len(name) <= 28
    assert ("what it is" in shown, "time without a step" in shown) == (beside, not beside)


def test_it_fits_into_eighty_columns(slow):
    assert max(map(len, text(slow, width=80).splitlines())) <= 80


def test_the_sparkline_shows_the_culprit_leave_its_peers(slow):
    lines = text(slow, width=120).splitlines()
    own = next(line for line in lines if line.strip().startswith("rank 5 ") and "▁" not in line)
    bars = [letter for letter in own if letter in terminal_report.SPARKS]
    assert len(bars) == 48
    before, after = bars[5:16], bars[-20:]
    rise = terminal_report.SPARKS.index
    assert max(map(rise, before)) < min(map(rise, after))


def test_a_sparkline_scales_from_zero_and_leaves_gaps():
    values = np.array([0.0, 1.0, 4.0, np.nan, 8.0])
    assert terminal_report.sparkline(values, 8.0) == "▁▁▄ █"
    assert terminal_report.sparkline(values, 0.0) == "     "


def test_the_series_of_a_culprit_is_what_the_evidence_is_about():
    of = frame(Job(steps=96, faults=(Fault("data", (2, 3), 0.5, 48),)))
    made = report(of)
    series = rank_series.of_culprit(of, made.incidents[0], 48)
    assert (series.rank in {2, 3}, series.column) == (True, "data_seconds")
    place = series.rank
    assert series.own == pytest.approx(of.data[:, place].reshape(48, 2).mean(axis=1))
    others = [rank for rank in range(8) if rank not in {2, 3}]
    peers = np.median(of.data[:, others], axis=1).reshape(48, 2).mean(axis=1)
    assert series.peers == pytest.approx(peers)


def test_an_incident_without_a_known_rank_has_no_series():
    of = frame(SLOW_EIGHT)
    cause = report(of).verdict.cause
    for where in (Where(), Where(nodes=("node-00000",)), Where(ranks=(99,))):
        assert rank_series.of_culprit(of, incident(cause, locations(of), where=where), 8) is None


@pytest.mark.parametrize("show", [terminal_report.render, lambda r: verdict_text.render(r.verdict)])
def test_names_with_escapes_and_markup_are_inert(show):
    of = replace(frame(SLOW_EIGHT, job_id=HOSTILE), nodes=(HOSTILE,) * 8)
    made = report(of, unobserved=(HOSTILE,))
    console = Console(file=io.StringIO(), width=400, no_color=True, highlight=False)
    console.print(show(made))
    written = console.file.getvalue()
    assert not set("\x1b\x07\u202e") & set(written)
    assert "[/bold][link=http://evil.example]x\\x1b[2J" in written


def test_colours_do_not_let_an_escape_of_a_name_through():
    of = frame(SLOW_EIGHT, job_id=HOSTILE)
    written = text(report(of), terminal=True)
    assert "\x1b[1" in written
    assert "\x1b[2J" not in written
    assert "\x1b]" not in written


def test_a_healthy_job_says_so(slow):
    said = text(report(frame(Job())))
    assert "No straggler: no rank delays the others. Confidence 0.99." in said
    assert "Evidence" not in said


def test_a_job_without_step_records_still_has_its_incident(slow):
    bare = replace(slow, verdict=None, frame=None)
    said = " ".join(text(bare, width=300).split())
    assert "hw_thermal_slowdown: rank 5" in said
    assert "Median step" not in said


def test_more_incidents_and_observations_are_counted(slow):
    many = replace(slow, incidents=slow.incidents * 12, observations=slow.observations * 20)
    said = " ".join(text(many, width=300).split())
    assert "3 more incidents, in --json." in said
    assert "12 more observations, in --json." in said
