"""Interruptions of jobs in the watch: how many, and the time to detect and to recover."""

import json
from types import SimpleNamespace

import pytest

from goodput_records import end, run, table
from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.account import Recovery
from rankscope_analyzers.watch.goodput import Goodput
from rankscope_analyzers.watch.incident_history import Event
from rankscope_analyzers.watch.interruptions import Interruptions
from rankscope_analyzers.watch.recoveries import Recoveries
from watched_goodput import STEPS, job, look, report


def test_interruptions_and_the_time_to_recover_are_summed_up_by_project_and_kept():
    found = Interruptions()
    found.add(("llm", ""), {parts.PRODUCTIVE: 800.0, parts.RESTART: 80.0}, 8, 2, 0)
    found.add(("llm", ""), {parts.HANG: 160.0}, 8, 0, 1)
    found.add(("llm", ""), {parts.HANG: 160.0}, 0, 0, 1)
    found.detect(("llm", ""), 12.0)
    found.detect(("llm", ""), 30.0)
    later = Interruptions()
    later.restore(json.loads(json.dumps(found.kept())))
    prefix = "rankscope_project_"
    said = {
        (one.metric.name.removeprefix(prefix), *one.labels[2:]): one.value
        for one in later.samples()
    }
    assert said == {
        ("job_seconds_total",): 130.0,
        ("detections_total",): 2.0,
        ("detection_seconds_total",): 42.0,
        ("interruptions_total", "restart"): 2.0,
        ("recovery_seconds_total", "restart"): 10.0,
        ("interruptions_total", "hang"): 1.0,
        ("recovery_seconds_total", "hang"): 20.0,
    }
    later.restore([["llm", "", [130.0, 2.0, 1.0, 10.0, 20.0]]])  # kept before there were detections
    with pytest.raises(ValueError, match="are not sums"):
        later.restore([["a", "b", [-1.0, 0, 0, 0, 0]]])


def test_a_restart_of_a_job_is_an_interruption_of_its_project():
    again = run(end(STEPS) + 20.0, range(1, 201), attempt=1)
    records = table(STEPS, again)
    goodput = Goodput(60.0)
    gathered = Gathered((job(records=records),), JobEvidence())
    assert not goodput.look(gathered, [report(end(again) + 1.0)], end(again) + 1.0)
    goodput.announce()
    found = {(one.metric.name, *one.labels): one.value for one in goodput.samples()}
    assert found["rankscope_project_interruptions_total", "", "", "restart"] == 1.0
    spent = found["rankscope_project_recovery_seconds_total", "", "", "restart"]
    assert spent == pytest.approx(20.0)
    assert found["rankscope_project_interruptions_total", "", "", "hang"] == 0.0
    kept = json.loads(json.dumps(goodput.kept()))
    assert found["rankscope_job_last_recovery_seconds", "job", "restart"] == pytest.approx(20.0)
    assert found["rankscope_job_effective_training_time_ratio", "job"] == pytest.approx(
        1 - (20.0 + 300 * 0.05) / (end(again) - 1000.0)
    )
    later = Goodput(60.0)
    later.restore(kept)
    (counted,) = [one for one in later.samples() if one.metric is metrics.RECOVERIES]
    assert counted.labels == ("", "restart")
    assert [count for _, count in counted.value.buckets][:2] == [0, 1]
    assert metrics.JOB_RECOVERY not in {one.metric for one in later.samples()}


def test_a_recovery_is_late_if_it_takes_longer_than_its_class_may():
    known = Recoveries({"production": "1m", "": "2m"})
    known.add("a", "production", [Recovery("restart", 60.0), Recovery("restart", 60.1)])
    known.add("b", "research", [Recovery("restart", 60.1), Recovery("hang", 120.1)])

    def late(recoveries):
        return {
            one.labels: one.value
            for one in recoveries.samples()
            if one.metric is metrics.RECOVERIES_LATE
        }

    expected = {("production", "restart"): 1, ("research", "restart"): 0, ("research", "hang"): 1}
    assert late(known) == expected
    kept = json.loads(json.dumps(known.kept()))
    later = Recoveries()
    later.restore(kept)
    assert late(later) == expected
    later.restore([one[:3] for one in kept])  # kept before they were counted
    assert late(later) == dict.fromkeys(expected, 0)
    for bad in (-1, 0.5, "1"):
        with pytest.raises(ValueError, match="is not a count"):
            later.restore([[*kept[0][:3], bad]])


@pytest.mark.parametrize(("since", "counted"), [(1000.0, 0), (1030.0, 1), (1061.0, 0), (None, 0)])
def test_an_incident_is_found_as_late_as_it_began_before_if_its_job_was_watched(since, counted):
    goodput = Goodput(60.0)
    look(goodput, 1020.0)
    incident = SimpleNamespace(since_unix_seconds=since)
    for change in ("opened", "back", "culprit changed"):
        goodput.note_events([Event("job", "gpu_compute", change, "", incident=incident)], 1060.0)
    goodput.note_events([Event("other", "gpu_compute", "opened", "", incident=incident)], 1060.0)
    goodput.note_events([Event("job", "gpu_compute", "over", "")], 1060.0)
    goodput.announce()
    found = {one.metric: one.value for one in goodput.samples()}
    assert found[metrics.PROJECT_DETECTIONS] == counted
    assert found[metrics.PROJECT_DETECTION_SECONDS] == (30.0 if counted else 0.0)
