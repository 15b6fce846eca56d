import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from goodput_records import STEP, end, run, table
from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.metrics import gpus, job_work, pods
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.fusion.spent_time import with_spent_time
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.account import Recovery
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.intake.observed import gathered as put_together
from rankscope_analyzers.reports import job_json, job_summary
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.watch import goodput as watch_goodput
from rankscope_analyzers.watch.computed import Computed
from rankscope_analyzers.watch.goodput import KEPT_AS, MOST_OWNERS, Goodput
from rankscope_analyzers.watch.incident_history import Event
from rankscope_analyzers.watch.interruptions import Interruptions
from rankscope_analyzers.watch.memory import Memory, NoWatch
from rankscope_analyzers.watch.recoveries import Recoveries
from rankscope_analyzers.watch.store import FileStore

RANKS = 4
H100 = "NVIDIA H100 80GB HBM3"
STEPS = run(1000.0, range(1, 601), lambda s, r: {"own": 0.05} if s > 300 and r == 2 else {})
RECORDS = table(STEPS)


def job(name="job", records=RECORDS, live=True):
    return JobRecords(name, records, RANKS, (), live)


def report(now, name="job"):
    places = {rank: RankLocation(rank, "node") for rank in range(RANKS)}
    return JobReport(name, None, None, (), (), places, (), (), now)


def info(name, project, job_class):
    labels = {"job_id": name, "project": project, "class": job_class}
    return Series("node", pods.JOB_INFO.name, labels, np.array([1000.0]), np.array([1.0]))


def look(goodput, now, names=("job",), observed=None):
    shown = RECORDS[RECORDS.t_start_unix_seconds + RECORDS.step_seconds <= now]
    evidence = JobEvidence(observed or Observed({}))
    gathered = Gathered(tuple(job(name, shown) for name in names), evidence)
    for _ in range(2):  # the first one waits for the start of the processes
        assert not goodput.look(gathered, [report(now, name) for name in names], now)


def values(goodput):
    counters = [one for one in goodput.samples() if one.metric.kind == "counter"]
    return {(*one.labels,): one.value for one in counters if one.value > 1e-6}


def seen_by(path, times, kill_after=()):
    """Look at these times; behind some of them go on with another process."""
    pages = []
    goodput, memory = started(path)
    for now in times:
        memory.begin(NoWatch(), None)
        look(goodput, now)
        assert memory.end(NoWatch(), None, changed=True)
        goodput.announce()
        pages.append(values(goodput))
        if now in kill_after:
            goodput, memory = started(path)
    return pages


def started(path):
    goodput = Goodput(60.0)
    return goodput, Memory(FileStore(path), pytest.fail, {KEPT_AS: goodput})


TIMES = np.arange(1010.0, end(STEPS) + 11.0, 10.0).tolist()


def test_sums_of_a_job_are_exported_and_add_up_to_the_time_of_its_gpus(tmp_path):
    found = seen_by(tmp_path / "sums", TIMES)[-1]
    assert found["job", parts.PRODUCTIVE] == pytest.approx(RANKS * 600 * STEP)
    assert found["job", parts.STRAGGLER] == pytest.approx(RANKS * 300 * 0.05)
    of_job = sum(seconds for (name, *_), seconds in found.items() if name == "job")
    assert of_job == pytest.approx(RANKS * (end(STEPS) - 1000.0))
    assert found["", "", parts.STRAGGLER] == found["job", parts.STRAGGLER]


def test_a_watch_that_is_started_anew_exports_what_one_that_ran_on_would_have(tmp_path):
    whole = seen_by(tmp_path / "whole", TIMES)
    parted = seen_by(tmp_path / "parted", TIMES, kill_after=(TIMES[2], TIMES[4]))
    for before, now, other in zip(parted, parted[1:], whole[1:], strict=False):
        assert all(now[key] >= seconds for key, seconds in before.items()), "a counter fell"
        assert now == {key: pytest.approx(seconds, rel=1e-4) for key, seconds in other.items()}


def test_a_sum_is_exported_only_when_it_is_kept():
    goodput = Goodput(60.0)
    look(goodput, 1020.0)
    assert not values(goodput)
    goodput.announce()
    assert values(goodput)
    goodput.stand_by()
    assert not values(goodput)


def test_jobs_of_a_project_and_class_are_summed_up_over_their_ends():
    goodput = Goodput(60.0)
    labelled = put_together([info("a", "vision", "prod"), info("b", "vision", "prod")])
    look(goodput, 1020.0, ("a", "b"), labelled)
    look(goodput, 1020.0 + 7300.0, (), labelled)
    goodput.announce()
    found = values(goodput)
    assert {key[:2] for key in found} == {("vision", "prod")}, "the jobs are forgotten"
    assert found["vision", "prod", parts.PRODUCTIVE] == pytest.approx(2 * RANKS * 20.0, rel=0.01)


def thousands(goodput, names, now, records=RECORDS):
    gathered = Gathered(tuple(job(name, records) for name in names), JobEvidence(Observed({})))
    assert not goodput.look(gathered, [report(now, name) for name in names], now)


def test_accounts_of_the_thousand_jobs_that_were_seen_last_are_kept(monkeypatch):
    monkeypatch.setattr(watch_goodput, "MOST_JOBS", 3)
    goodput = Goodput(60.0)
    thousands(goodput, "abc", 1020.0, RECORDS[:0])
    thousands(goodput, "cde", 1050.0, RECORDS[:0])
    assert set(goodput.kept()["jobs"]) == set("cde")


def test_of_a_job_without_an_account_nothing_is_exported_for_ever(monkeypatch):
    monkeypatch.setattr(watch_goodput, "MOST_JOBS", 3)
    goodput, first = Goodput(60.0), run(1000.0, range(1, 201))
    restarted = table(first, run(end(first) + 20.0, range(2, 101), attempt=1))
    for names in ("a", "a", "bcd", "bcd"):
        thousands(goodput, names, 1060.0, restarted)
    goodput.announce()
    shown = {one.labels[0] for one in goodput.samples() if one.metric is metrics.JOB_RECOVERY}
    assert shown == set("bcd")


def test_a_job_beyond_the_thousandth_begins_no_account_of_another_one_anew(monkeypatch):
    monkeypatch.setattr(watch_goodput, "MOST_JOBS", 3)
    goodput, now = Goodput(60.0), end(STEPS) + 10.0
    for number, names in enumerate(("abc", "xabc", "xabc", "xabc")):
        thousands(goodput, names, now + 30.0 * number)
    goodput.announce()
    assert set(goodput.kept()["jobs"]) == set("abc")
    found = values(goodput)
    total = sum(seconds for key, seconds in found.items() if key[2:] == (parts.PRODUCTIVE,))
    assert total == pytest.approx(3 * RANKS * 600 * STEP)


@pytest.mark.parametrize(("later", "known"), [(7200.0, {"a", "b"}), (7201.0, {"b"})])
def test_the_account_of_a_job_is_kept_for_two_hours_after_it_was_seen(later, known):
    goodput = Goodput(60.0)
    look(goodput, 1020.0, ("a", "b"))
    look(goodput, 1020.0 + later, ("b",))
    assert set(goodput.kept()["jobs"]) == known


@pytest.mark.parametrize(("later", "shown"), [(899.0, {"a", "b"}), (901.0, {"b"})])
def test_series_of_a_job_that_has_ended_go_long_before_it_is_forgotten(later, shown):
    goodput = Goodput(60.0)
    look(goodput, 1020.0, ("a", "b"))
    look(goodput, 1020.0 + later, ("b",))
    goodput.announce()
    of_jobs = {one.labels[0] for one in goodput.samples() if one.metric is metrics.JOB_GPU_SECONDS}
    assert of_jobs == shown
    look(goodput, 1021.0 + later, ("a", "b"))
    goodput.announce()
    found = values(goodput)
    assert found["a", parts.PRODUCTIVE] == found["b", parts.PRODUCTIVE]  # goes on where it was


@pytest.mark.parametrize(("pairs", "shown"), [(MOST_OWNERS, MOST_OWNERS), (MOST_OWNERS + 2, 65)])
def test_there_are_at_most_64_projects_and_classes_and_one_for_the_others(pairs, shown):
    assert MOST_OWNERS == 64
    goodput = Goodput(60.0)
    names = [f"job-{number}" for number in range(pairs)]
    look(goodput, 1010.0, names, put_together([info(name, name, "x") for name in names]))
    goodput.announce()
    sums = {key[:2]: value for key, value in values(goodput).items() if len(key) == 3}
    assert len(sums) == shown
    others = sums.get(("other", "other"), 0.0)
    assert others == pytest.approx((pairs - MOST_OWNERS) * RANKS * 10.0, rel=0.02)


@pytest.mark.parametrize(
    "bad", [3, {}, {"jobs": {"a": {}}}, {"jobs": {}, "seen": {}, "owners": [1]}]
)
def test_what_is_no_account_is_not_restored(bad):
    goodput = Goodput(60.0)
    with pytest.raises((TypeError, ValueError, KeyError, AttributeError)):
        goodput.restore(bad)
    goodput.announce()
    assert not values(goodput)


def test_a_report_says_where_the_time_of_a_running_job_went():
    made = with_spent_time(report(end(STEPS) + 1), job(), Observed({}), 60.0)
    said = job_json.as_object(made)["gpu_seconds"]
    assert said[parts.STRAGGLER] == pytest.approx(RANKS * 300 * 0.05)
    assert job_summary.spent(made) == ("Of 0.0833 GPU-hours: productive 80.0%, straggler 20.0%.")
    old = with_spent_time(report(end(STEPS)), job(live=False), Observed({}), 60.0)
    assert job_json.as_object(old)["gpu_seconds"] is None
    assert not job_summary.spent(old)


def computing():
    """Return series of a job of which each token takes 3e10 FLOPs, on four H100."""
    times = np.arange(1000.0, 1000.0 + 121.0, 30.0)
    ones, tokens = np.ones(len(times)), 2e4 * (times - 1000.0)
    return put_together(
        [
            Series("node", job_work.JOB_TOKENS.name, {"job_id": "job"}, times, tokens),
            Series("node", job_work.JOB_EPOCHS.name, {"job_id": "job"}, times, tokens / 1e6),
            Series(
                "node",
                job_work.JOB_MODEL_FLOPS.name,
                {"job_id": "job", "per": "token"},
                times,
                3e10 * ones,
            ),
            *(
                Series("node", gpus.GPU_INFO.name, {"uuid": uuid, "model": H100}, times, ones)
                for uuid in map(str, range(RANKS))
            ),
        ]
    )


def look_at_computing(goodput, now, since=0.0):
    found = computing()
    seen = put_together(
        replace(one, times=one.times[chosen], values=one.values[chosen])
        for one in found.all()
        for chosen in [(one.times <= now) & (one.times >= since)]
    )
    places = {rank: RankLocation(rank, "node", uuid=str(rank)) for rank in range(RANKS)}
    one = JobReport("job", None, None, (), (), places, (), (), now)
    shown = RECORDS[RECORDS.t_start_unix_seconds + RECORDS.step_seconds <= now]
    assert not goodput.look(Gathered((job(records=shown),), JobEvidence(seen)), [one], now)


def test_a_job_says_how_much_it_computes_and_its_project_how_many_tokens(tmp_path):
    goodput, memory = started(tmp_path / "sums")
    memory.begin(NoWatch(), None)
    look_at_computing(goodput, 1060.0)
    look_at_computing(goodput, 1090.0)
    assert memory.end(NoWatch(), None, changed=True)
    goodput.announce()
    found = {(one.metric, *one.labels): one.value for one in goodput.samples()}
    assert found[metrics.JOB_FLOPS, "job", "program"] == pytest.approx(6e14)
    assert found[metrics.JOB_PEAK_FLOPS, "job", "bf16"] == RANKS * 989.5e12
    mfu = found[metrics.JOB_MFU, "job", "program", "bf16"]
    assert mfu == pytest.approx(6e14 / (RANKS * 989.5e12))
    assert found[metrics.PROJECT_TOKENS, "", ""] == pytest.approx(2e4 * 30)
    assert found[metrics.PROJECT_EPOCHS, "", ""] == pytest.approx(0.6)
    look_at_computing(goodput, 1120.0, since=1060.0)
    goodput.announce()
    found = {(one.metric, *one.labels): one.value for one in goodput.samples()}
    per_gpu = found[metrics.JOB_THROUGHPUT, "job", str(RANKS), "tokens"]
    assert per_gpu == pytest.approx(2e4 / RANKS)
    assert "job" in goodput.kept()["scaling"]
    goodput, memory = started(tmp_path / "sums")
    memory.begin(NoWatch(), None)
    look_at_computing(goodput, 1120.0)
    goodput.announce()
    found = {(one.metric, *one.labels): one.value for one in goodput.samples()}
    assert found[metrics.PROJECT_TOKENS, "", ""] == pytest.approx(2e4 * 30)
    assert found[metrics.PROJECT_EPOCHS, "", ""] == pytest.approx(0.6)
    look(goodput, 1120.0, ())
    assert metrics.JOB_MFU not in {one.metric for one in goodput.samples()}


def test_tokens_count_on_over_restarts_of_an_agent_and_once_each():
    times = np.array([10.0, 20.0, 30.0])
    for values, grown in (([5, 7, 9], 2), ([5, 9, 3], 3), ([1, 1, 1], 0)):
        found = Computed()
        several = [
            Series("n", job_work.JOB_TOKENS.name, {}, times[:end], np.array(values[:end], float))
            for end in (2, 3, 3)
        ]
        for one in several:
            found.add(("p", ""), "job", {one.name: [one]}, (), 1, 30.0)
        assert [one.value for one in found.sums()] == ([grown] if grown else [])
    with pytest.raises(ValueError, match="are not sums"):
        found.restore([["p", "", float("nan")]])


def test_what_a_job_repeats_after_a_restart_is_no_further_epoch():
    found = Computed()

    def look(job: str, *values: float) -> list[float]:
        several = [
            Series(f"n{node}", job_work.JOB_EPOCHS.name, {}, np.array([10.0]), np.array([value]))
            for node, value in enumerate(values)
        ]
        found.add(("p", ""), job, {job_work.JOB_EPOCHS.name: several}, (), 1, 10.0)
        return [one.value for one in found.sums() if one.metric is metrics.PROJECT_EPOCHS]

    assert look("job", 1.0, 1.5) == []  # what it made before it was watched
    assert look("job", 1.75, 1.5) == [0.25]
    assert look("job", 1.0) == [0.25]  # back at its checkpoint
    assert look("job", 2.0) == [0.5]
    assert look("other", 7.0) == [0.5]
    assert look("other", 8.0) == [1.5]
    found.forget(["job"])
    assert look("job", 5.0) == [1.5]
    later = Computed()
    later.restore(json.loads(json.dumps(found.kept())))
    assert [one.value for one in later.sums()] == [1.5]
    later.restore([["p", "", 7.0]])  # kept before there were epochs
    assert [(one.metric, one.value) for one in later.sums()] == [(metrics.PROJECT_TOKENS, 7.0)]
    with pytest.raises(ValueError, match="are not sums"):
        later.restore([["p", "", 7.0, -1.0]])


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
