"""Sums of GPU time that the watch exports: of jobs, projects and classes, over its restarts."""

import numpy as np
import pytest

from goodput_records import STEP, end, run, table
from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.metrics import pods
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.fusion.spent_time import with_spent_time
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.intake.observed import gathered as put_together
from rankscope_analyzers.reports import job_json, job_summary
from rankscope_analyzers.watch import goodput as watch_goodput
from rankscope_analyzers.watch.goodput import MOST_OWNERS, Goodput
from rankscope_analyzers.watch.memory import NoWatch
from watched_goodput import RANKS, RECORDS, STEPS, job, look, report, started, values


def info(name, project, job_class):
    labels = {"job_id": name, "project": project, "class": job_class}
    return Series("node", pods.JOB_INFO.name, labels, np.array([1000.0]), np.array([1.0]))


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
