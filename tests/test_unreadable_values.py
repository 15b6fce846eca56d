"""Values of series that are no finite numbers: each costs itself alone, and reports say so."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hanging_jobs import training_page
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.goodput import model_work
from rankscope_analyzers.intake.page_history import PageHistory, from_pages
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from rankscope_analyzers.watch.goodput import KEPT_AS, Goodput
from rankscope_analyzers.watch.memory import Memory, NoWatch
from rankscope_analyzers.watch.store import FileStore, Part

READS = (*job_reports.READS, *model_work.READS)
SENTENCE = "1 value of the series of node n1: no finite numbers"
TOKENS, TEMPERATURE = "rankscope_job_tokens_total", "rankscope_gpu_temperature_celsius"


def page(job="job", node="n1", line="", read=0.0):
    """Return a page of a job's ranks, with a further line."""
    made = training_page(5.0, node=node, read=read)
    return replace(made, body=made.body.replace('job_id="job"', f'job_id="{job}"') + line)


def judged(*pages):
    """Return what was observed, and the reports on all jobs."""
    observed = from_pages(pages, READS)
    evidence = JobEvidence(observed)
    now = max(one.time for one in pages)
    return observed, job_reports.reports(TimingResults((), {}, ()), evidence, now)


def said(reports):
    return {one.job_id: [text for text in one.unobserved if "finite" in text] for one in reports}


@pytest.mark.parametrize("value", ["+Inf", "-Inf", "NaN", "1e999", "1e300", "9" * 400, "many"])
def test_a_value_that_is_no_finite_number_is_left_out_and_its_job_says_so(value):
    odd = page(line=f'{TOKENS}{{job_id="job"}} {value}\n')
    beside = page("team/b", line=f'{TOKENS}{{job_id="team/b"}} 3\n')
    observed, reports = judged(replace(odd, body=odd.body + beside.body), page("team/c", "n2"))
    assert [one.last for one in observed.named(TOKENS)] == [3.0]
    assert said(reports) == {"job": [SENTENCE], "team/b": [], "team/c": []}


def test_a_value_about_no_job_is_missed_by_the_jobs_of_its_node():
    name = next(one.name for one in job_reports.READS if "job_id" not in one.labels)
    _, reports = judged(page(line=f'{name}{{gpu="0"}} +Inf\n'), page("team/b", "n2"))
    assert said(reports) == {"job": [SENTENCE], "team/b": []}


def test_a_page_whose_time_is_no_number_is_of_when_it_was_read():
    odd = page(read=3.0)
    lines = odd.body.splitlines()
    assert lines[-1].startswith("rankscope_snapshot_timestamp_seconds ")
    odd = replace(odd, body="\n".join([*lines[:-1], "rankscope_snapshot_timestamp_seconds 1e999"]))
    observed = from_pages([odd], READS)
    assert observed.newest() == {"n1": odd.time}


class Saved:
    """The accounts of a watch that looks at two jobs."""

    def __init__(self, path):
        self.history = PageHistory(READS, 9)
        self.accounts, self.said = Goodput(60.0), []
        self.memory = Memory(FileStore(path), self.said.append, {KEPT_AS: self.accounts})
        self.memory.begin(NoWatch(), None)

    def look(self, read, tokens):
        lines = "".join(f'{TOKENS}{{job_id="job"}} {one}\n' for one in [tokens])
        self.history.add([page(line=lines, read=read), page("team/b", "n2", read=read)])
        evidence = JobEvidence(self.history.observed())
        now = page(read=read).time
        reports = job_reports.reports(TimingResults((), {}, ()), evidence, now)
        assert self.accounts.look(Gathered((), evidence), reports, now) == []
        assert self.memory.end(NoWatch(), None, changed=True)


def test_an_infinite_counter_on_a_page_ends_no_watch_and_costs_no_other_sum(tmp_path):
    watched = Saved(tmp_path / "state")
    for look in range(12):
        watched.look(600.0 - 30.0 * look, "+Inf" if look == 8 else 100 + look)
    assert watched.said == []
    again = Saved(tmp_path / "state")
    samples = {(one.metric.name, *one.labels): one.value for one in again.accounts.samples()}
    assert samples["rankscope_project_tokens_total", "", ""] == 11.0
    assert {one[1] for one in samples if one[0] == "rankscope_job_gpu_seconds_total"} == {
        "job",
        "team/b",
    }


@pytest.mark.parametrize("value", [math.inf, math.nan, {"deep": [1.0, -math.inf]}, {1, 2}])
def test_a_part_that_has_no_form_is_left_out_of_the_saved_state_and_counted(tmp_path, value):
    store = FileStore(tmp_path / "state")
    parts = [Part("job", "a", 1.0), Part("job", "b", value), Part("job", "c", 3.0)]
    assert store.write(parts, 5.0) == 1
    kept = store.read()
    assert (kept.parts, kept.problems) == ((parts[0], parts[2]), ())
