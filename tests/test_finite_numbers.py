"""Every number in every output is finite or absent, whatever a trace holds."""

import io
import json
import math
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from rankscope_agent.contract.metrics import watch as metrics
from rankscope_analyzers import command
from rankscope_analyzers.fusion.job_reports import JobEvidence, reports
from rankscope_analyzers.reports import html, job_json, markdown, terminal
from rankscope_analyzers.reports.verdict_text import rank_table
from rankscope_analyzers.runs.files import RunRecordFiles
from rankscope_analyzers.runs.record import record
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers import trace_verdicts
from rankscope_analyzers.stragglers.diagnosis import diagnose_each, diagnosis
from rankscope_analyzers.stragglers.verdict import RankTimes
from rankscope_analyzers.text import finite_json
from rankscope_analyzers.watch.exporter import FindingsExporter

BAR_WIDTH = 24

START = 1.76e9
COLUMNS = ("step_seconds", "data_seconds", "compute_seconds", "sync_seconds")

ODDITIES = {
    "some are missing": lambda values, odd: np.where(odd < 0.6, np.nan, values),
    "few are there": lambda values, odd: np.where(odd < 0.98, np.nan, values),
    "some are zero": lambda values, odd: np.where(odd < 0.2, 0.0, values),
    "all are zero": lambda values, _: values * 0.0,
    "tiny": lambda values, _: values * 1e-300,
    "huge": lambda values, _: values * 1e300,
    "long": lambda values, _: values * 1e8,
    "infinite": lambda values, odd: np.where(odd < 0.2, np.inf, values),
    "negative": lambda values, odd: np.where(odd < 0.2, -values, values),
}


@st.composite
def traces(draw):
    """Return a job of any layout whose columns are odd in any way, with ranks or steps missing."""
    tensor, replicas, pipeline = (
        draw(st.sampled_from(sizes)) for sizes in ((1, 2), (1, 2, 4), (1, 2, 4))
    )
    world, steps = tensor * replicas * pipeline, draw(st.integers(2, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = plain(random, steps, world, tensor, tensor * replicas)
    odd = st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from(list(ODDITIES)))
    for name, kind in draw(odd).items():
        rows[name] = ODDITIES[kind](rows[name].to_numpy(), random.random(len(rows)))
    if draw(st.booleans()):
        gone = random.random(world) < draw(st.sampled_from((0.1, 0.5, 0.8)))
        rows = rows[~gone[rows["rank"]]]
    if draw(st.booleans()):
        # A stage may be missing in half of the steps: its weight there is nobody's knowledge.
        rows = rows[(rows["pp_stage"] > 0) | (rows["step"] < steps // 2)]
    timing = draw(st.sampled_from((None, "kernel", "wall")))
    meta = {
        "format_version": 1,
        "world_size": world,
        "gpus_per_node": 8,
        "tensor_parallel": tensor,
        "data_parallel": replicas,
        "pipeline_parallel": pipeline,
        "microbatches": draw(st.sampled_from((1, 4))),
        "rank_order": "tp,dp,pp",
    }
    meta |= {} if timing is None else {"compute_timing": timing}
    return JobRecords("t/j", rows, world, (), live=draw(st.booleans()), meta=meta)


def plain(random, steps, world, tensor, stage):
    rank, step = np.tile(np.arange(world), steps), np.repeat(np.arange(steps), world)
    compute, data = random.uniform(0.5, 1.0, len(rank)), random.uniform(0.0, 0.1, len(rank))
    longest = np.repeat((compute + data).reshape(steps, world).max(axis=1), world) + 0.1
    return pd.DataFrame(
        {
            "step": step,
            "rank": rank,
            "node": "n",
            "gpu": rank % 8,
            "t_start_unix_seconds": START + np.repeat(np.cumsum(longest[::world]), world),
            "step_seconds": longest,
            "data_seconds": data,
            "compute_seconds": compute,
            "sync_seconds": longest - compute - data,
            "dp_group": rank % tensor + rank // stage * tensor,
            "tp_group": rank // tensor,
            "pp_stage": rank // stage,
        }
    )


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def numbers(text):
    return json.loads(text, parse_constant=refuse)


def words(text):
    """Return what people read of a page as the words that no number should be."""
    text = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    return re.findall(r"(?i)(?<![\w/])[-+]?(?:nan|inf(?:inity)?)(?![\w/])[^<]{0,40}", text)


@settings(max_examples=100, derandomize=True)
@given(traces())
def test_every_number_of_every_output_is_finite(job):
    timing = diagnose_each([job])
    if "compute_timing" in job.meta:
        assert timing.errors == ()
    made = reports(timing, JobEvidence(), START)
    assert not [error for one in made for error in one.errors if error.part != "timing"]
    for one in made:
        strict = json.dumps(job_json.as_object(one), allow_nan=False)  # before anything mends it
        numbers(strict)
        json.dumps(record(one, []), allow_nan=False)
    page = html.write(made)
    block = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    numbers(block[1])
    screen = io.StringIO()
    terminal.show(Console(file=screen, width=120), made)
    assert words(page) + words(markdown.write(made)) + words(screen.getvalue()) == []
    exported = FindingsExporter()
    for now in (START, START + 30.0):
        exported.update(made, now, 0, ())
    assert all(math.isfinite(value) for value in values_of(exported))


def values_of(exported):
    families = text_string_to_metric_families(exported.text())
    return [sample.value for family in families for sample in family.samples]


@settings(max_examples=40, derandomize=True)
@given(traces())
def test_every_number_of_verdicts_on_traces_is_finite(job):
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "meta.json").write_text(json.dumps(job.meta))
        job.records.to_parquet(place / "records.parquet")
        found = trace_verdicts.judge(place)
    assert not [note for note in found.notes if "defect" in note]
    json.dumps(found.verdicts, allow_nan=False)


def test_a_stage_of_which_nobody_is_known_for_a_while_has_no_ideal_then():
    """Its weight was no number, and neither were the ideals of the whole job."""
    rows = plain(np.random.default_rng(1), 60, 4, 1, 2)
    rows.loc[(rows["pp_stage"] == 1) & (rows["step"] > 30), "compute_seconds"] = np.nan
    meta = {"world_size": 4, "pipeline_parallel": 2, "data_parallel": 2, "tensor_parallel": 1}
    meta |= {"microbatches": 4, "gpus_per_node": 8, "compute_timing": "kernel"}
    said = diagnosis(JobRecords("j", rows, 4, (), live=False, meta=meta)).verdict.what_if
    assert 1.0 <= said.stage_weights_kept.slowdown < 2.0
    assert 1.0 <= said.all_equal.slowdown < 2.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null_wherever_json_is_written(value, capsys, tmp_path):
    held = {"a": [value, {"b": (1.0, value)}], "c": "NaN", "d": None, "e": True, "f": 3}
    finite = {"a": [None, {"b": [1.0, None]}], "c": "NaN", "d": None, "e": True, "f": 3}
    assert numbers(finite_json.text(held)) == finite
    command.print_json(held)
    assert numbers(capsys.readouterr().out) == finite
    files = RunRecordFiles(tmp_path)
    path = files.write({"job_id": "a", "attempt": 0, "median_step_seconds": value}, 1.0)
    assert numbers(path.read_text())["median_step_seconds"] is None
    place = tmp_path / "verdicts.json"
    trace_verdicts.write(place, [trace_verdicts.JobVerdicts("a", ({"lost_fraction": value},), ())])
    assert numbers(place.read_text())["jobs"]["a"]["verdicts"] == [{"lost_fraction": None}]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_series(value):
    exported = FindingsExporter()
    exported.update((), START, 0, [metrics.WATCH_EVALUATION.sample(value)])
    assert "\nrankscope_watch_evaluation_seconds" not in exported.text()
    assert "rankscope_watch_jobs 0.0" in exported.text()


def test_a_phase_that_takes_longer_than_its_step_draws_no_endless_bar():
    times = RankTimes(0, "n", 0.001, 1e6, 1e6, 1e6, None)
    screen = io.StringIO()
    Console(file=screen, width=200).print(rank_table([times], ()))
    assert max(map(screen.getvalue().count, "▒█░")) <= BAR_WIDTH + 1, "one is in the title"


def test_sentences_say_of_no_number_that_it_is_unknown():
    assert words("it takes nan of it, <td>inf s</td>, -inf") == ["nan of it, ", "inf s", "-inf"]
    assert words("infiniband docs/nan/x information") == []
