"""What a diagnosis has read, kept in a directory, gives the same verdict; other files do not."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hanging_jobs import NOW, training_page
from rankscope_agent.contract import stalls
from rankscope_analyzers import cli
from rankscope_analyzers.findings.builder import make_finding
from rankscope_analyzers.findings.finding import Cost, Evidence, RankLocation, Where
from rankscope_analyzers.fusion import job_reports, saved
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.observed import gathered as put_together
from rankscope_analyzers.intake.page_history import from_pages
from rankscope_analyzers.reports import job_json
from rankscope_analyzers.steps.job_records import JobRecords, SourceError
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from simulated_jobs import Fault, Job, records
from test_stalls import real

SLOW = Job(faults=(Fault("compute", (3,), 0.6),))


def known(**more):
    """Return what agents told of a job that is slow and then hangs."""
    observed = from_pages([training_page(90.0, stopped=[0, 0, 1, 0])], job_reports.READS)
    found = make_finding(
        *("environment_differs", "environment", "job", Where(("n1",), (1,)), "NCCL_DEBUG differs"),
        (Evidence("environ", 1.0, 2.0, "state", "what it is"),),
    )
    located = replace(
        found,
        where=replace(found.where, culprits=(RankLocation(1, "n1", nics=("mlx5_0",)),)),
        cost=Cost(0.1, 0.2),
        agreeing=("host",),
    )
    evidence = JobEvidence(
        observed=observed,
        findings=(located,),
        notes=("agent n9 does not answer",),
        sources=("http://n1:9877",),
        of_jobs={"job": ["a note"]},
        stalls={"job": [stalls.read(real(rank=rank)) for rank in range(4)]},
    )
    rows = records(SLOW)
    job = JobRecords("job", rows, 8, ("a note of records",), live=True, **more)
    return Gathered((job,), evidence)


def verdict(gathered, now):
    timing = diagnose_each(gathered.jobs)
    assert timing.errors == ()
    (report,) = job_reports.reports(timing, gathered.evidence, now)
    return job_json.as_object(report)


@pytest.mark.parametrize(
    "more", [{}, {"start": records(SLOW, seed=1).head(80)}], ids=["records", "with a start"]
)
def test_what_was_saved_gives_the_same_verdict(tmp_path, more):
    gathered = known(**more)
    saved.write(tmp_path / "kept", gathered, NOW)
    again, now = saved.read(tmp_path / "kept")
    assert now == NOW
    assert again.evidence.findings == gathered.evidence.findings
    assert again.evidence.stalls == gathered.evidence.stalls
    assert verdict(again, now) == verdict(gathered, NOW)
    assert verdict(again, now)["verdict"]["class"] == "hang"
    if more:
        pd.testing.assert_frame_equal(again.jobs[0].start, more["start"].reset_index(drop=True))


def test_infinite_values_stay_infinite(tmp_path):
    gathered = known()
    odd = next(gathered.evidence.observed.all())
    endless = put_together([replace(odd, values=np.full_like(odd.values, math.inf))])
    gathered = replace(gathered, evidence=replace(gathered.evidence, observed=endless))
    saved.write(tmp_path / "kept", gathered, NOW)
    again, _ = saved.read(tmp_path / "kept")
    assert next(again.evidence.observed.all()).last == math.inf


def test_the_command_reads_what_was_saved_and_its_records_are_a_trace(tmp_path, capsys):
    saved.write(tmp_path / "kept", known(), NOW)
    assert cli.main(["diagnose", "--trace", str(tmp_path / "kept"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["job"]
    assert said["verdict"]["summary"].startswith("no step since 2025-10-09 08:56:13 UTC (90 s ago)")
    assert said["made_unix_seconds"] == NOW
    assert cli.main(["diagnose", "--trace", str(tmp_path / "kept" / "job-0"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["verdict"]["class"] == "gpu_compute"


def test_nothing_is_written_over(tmp_path, capsys):
    trace = tmp_path / "trace"
    saved.write(trace, known(), NOW)
    before = (trace / saved.NAME).read_bytes()
    assert cli.main(["diagnose", "--trace", str(trace), "--save", str(trace)]) != 0
    assert "is not empty" in capsys.readouterr().err
    assert (trace / saved.NAME).read_bytes() == before


HOSTILE = {
    "truncated": lambda text: text[:200],
    "no object": lambda text: "[]",
    "deep": lambda text: "[" * 100_000,
    "another version": lambda text: text.replace('"format_version": 1', '"format_version": 9', 1),
    "no time": lambda text: text.replace(f'"made_unix_seconds": {NOW}', '"made_unix_seconds": {}'),
    "series without values": lambda text: changed(text, series=[["n", "m", {}, [], []]]),
    "series of two lengths": lambda text: changed(text, series=[["n", "m", {}, [1.0], [1, 2]]]),
    "series that goes back": lambda text: changed(text, series=[["n", "m", {}, [2, 1], [1, 2]]]),
    "series with NaN": lambda text: changed(text, series=[["n", "m", {}, [1], ["nan"]]]),
    "series of no list": lambda text: changed(text, series=5),
    "a finding that is none": lambda text: changed(text, findings=[{"kind": "hang"}]),
    "jobs that are not there": lambda text: changed(text, jobs=[{}, {}, {}]),
}


def changed(text, **members):
    return json.dumps(json.loads(text) | members)


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_saved_diagnosis_is_refused_in_one_sentence(tmp_path, change):
    saved.write(tmp_path / "kept", known(), NOW)
    path = tmp_path / "kept" / saved.NAME
    path.write_text(change(path.read_text()))
    with pytest.raises(SourceError, match=r"evidence\.json|job-1"):
        saved.read(tmp_path / "kept")
