"""How much is remembered of the pods of a node's jobs, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope_agent.sources.pods.lifecycles import Lifecycles
from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.pod_status import Failure
from rankscope_agent.sources.pods.records import Container, Owner, Pod

NOW = 1_760_000_000.0


def pod(name, failure=None, uid=""):
    box = Container("main", "", 0, {}, frozenset(), {}, started=True, failure=failure)
    owner = Owner("batch/v1", "Job", "job", "job-uid")
    return Pod(uid or name, "team", name, "n1", "Running", "", 0.0, False, owner, containers=(box,))


def failed(name, at, reason="Error", detail="1"):
    return pod(name, Failure(reason, detail, at))


def take(lives, job, new, before=None, now=NOW):
    lives.take(job, before, new, Membership(job, "Job"), counted=True, now_unix_seconds=now)


def ended(one):
    return replace(one, phase="Succeeded")


def test_256_running_jobs_are_remembered_and_the_others_said(caplog):
    lives = Lifecycles()
    for number in range(258):
        take(lives, f"job-{number}", pod(f"pod-{number}"))
    assert len(lives.jobs()) == 256
    assert {"job-256", "job-257"}.isdisjoint(lives.jobs())
    assert lives.left_out == 2
    assert [line for line in caplog.messages if "no more than 256 running jobs" in line]
    assert len(caplog.messages) == 1
    lives.leave("pod-257")
    take(lives, "job-0", ended(pod("pod-0")), before=pod("pod-0"))
    take(lives, "job-256", pod("pod-256"), before=pod("pod-256"))
    assert "job-256" in lives.jobs()
    assert lives.left_out == 0


def test_jobs_without_a_running_pod_make_room_the_first_to_end_first():
    lives = Lifecycles()
    for number in range(256):
        take(lives, f"job-{number}", pod(f"pod-{number}"))
    for number in (7, 3):
        take(lives, f"job-{number}", ended(pod(f"pod-{number}")), before=pod(f"pod-{number}"))
    lives.leave("pod-5")
    made = []
    for number in range(256, 260):
        before = set(lives.jobs())
        take(lives, f"job-{number}", pod(f"pod-{number}"))
        made += before - set(lives.jobs())
    assert made == ["job-7", "job-3", "job-5"]
    assert (lives.left_out, len(lives.jobs())) == (1, 256)


def test_jobs_that_failed_make_room_after_those_without_incident():
    lives = Lifecycles()
    for number in range(254):
        take(lives, f"job-{number}", pod(f"pod-{number}"))
    take(lives, "failed", replace(failed("pod-f", NOW), phase="Failed"))
    take(lives, "completed", ended(pod("pod-c")))
    take(lives, "next", pod("pod-n"))
    assert "completed" not in lives.jobs()
    assert lives.jobs()["failed"].failed == 1
    take(lives, "one more", pod("pod-m"))
    assert "failed" not in lives.jobs()


def test_a_loop_is_seen_in_jobs_without_a_history_too():
    lives = Lifecycles()
    for number in range(256):
        take(lives, f"job-{number}", pod(f"pod-{number}"))
    take(lives, "job", failed("pod", NOW), before=failed("pod", NOW - 1.0))
    assert list(lives.looping(NOW)) == ["pod"]


def test_the_four_newest_reasons_of_failures_are_kept():
    lives = Lifecycles()
    for number in range(5):
        take(lives, "job", failed(f"pod-{number}", NOW - number, detail=str(number)))
    assert [detail for _, detail in lives.jobs()["job"].newest] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(("others", "restarts"), [(255, 1), (256, 0)])
def test_256_pods_of_a_job_are_known_when_they_are_made_anew(others, restarts):
    lives = Lifecycles()
    for name in ("first", *(f"pod-{number}" for number in range(others))):
        take(lives, "job", pod(name))
    take(lives, "job", pod("first", uid="made anew"))
    assert lives.jobs()["job"].restarted == restarts


def gone(lives, *jobs):
    for number, job in enumerate(jobs):
        take(lives, job, failed(f"pod-of-{job}", NOW))
        lives.settle(frozenset(jobs[number + 1 :]), NOW + number)


@pytest.mark.parametrize(("later", "reported"), [(3599.0, ["job"]), (3601.0, [])])
def test_a_job_without_pods_is_reported_for_an_hour(later, reported):
    lives = Lifecycles()
    gone(lives, "job")
    lives.settle(frozenset(), NOW + later)
    assert list(lives.jobs()) == reported


def test_of_jobs_without_pods_the_four_that_ended_last_are_reported():
    lives = Lifecycles()
    gone(lives, *"abcde")
    assert sorted(lives.jobs()) == list("bcde")


def test_jobs_of_one_namespace_that_end_one_after_another_hide_no_failure_of_another():
    lives = Lifecycles()
    gone(lives, "prod/llm", *(f"sweep/{number}" for number in range(6)))
    assert sorted(lives.jobs()) == ["prod/llm", "sweep/3", "sweep/4", "sweep/5"]


def test_failed_jobs_of_one_namespace_make_room_before_those_of_another():
    lives = Lifecycles()
    take(lives, "prod/llm", replace(failed("llm", NOW), phase="Failed"))
    for number in range(257):
        take(lives, f"sweep/{number}", replace(failed(f"pod-{number}", NOW), phase="Failed"))
    assert "prod/llm" in lives.jobs()
    assert {"sweep/0", "sweep/1"}.isdisjoint(lives.jobs())
    assert len(lives.jobs()) == 256


@pytest.mark.parametrize(("later", "restarts"), [(299.0, 1), (301.0, 0)])
def test_pods_that_are_made_anew_are_waited_for_five_minutes(later, restarts):
    lives = Lifecycles()
    take(lives, "job", pod("first"))
    lives.settle(frozenset(), NOW)
    lives.settle(frozenset(), NOW + later)
    take(lives, "job", pod("first", uid="made anew"), now=NOW + later)
    lives.settle(frozenset(("job",)), NOW + later)
    assert lives.jobs()["job"].restarted == restarts


@pytest.mark.parametrize(("apart", "loops"), [(599.0, 1), (601.0, 0)])
def test_two_failures_within_ten_minutes_are_a_crash_loop(apart, loops):
    lives = Lifecycles()
    first, second = failed("pod", NOW - apart), failed("pod", NOW)
    take(lives, "job", second, before=first)
    assert len(lives.looping(NOW)) == loops


@pytest.mark.parametrize(("later", "loops"), [(599.0, 1), (601.0, 0)])
def test_a_container_that_has_run_for_ten_minutes_is_in_no_crash_loop(later, loops):
    lives = Lifecycles()
    take(lives, "job", failed("pod", NOW), before=failed("pod", NOW - 1.0))
    assert len(lives.looping(NOW + later)) == loops
