"""Which jobs the agent's page is about: for how long, how many, and with how many reasons."""

import pytest

from job_status_page import newest, node, put, remove, sums, waiting
from pod_json import pod
from pod_states import ended, waits, with_state, worker
from rankscope_agent.contract.metrics import job_status as metrics

__all__ = ["node"]

KEPT_SECONDS = 3600.0
MAX_GONE = 4
MAX_JOBS = 256
MAX_REASONS = 4


def test_a_failed_job_is_told_for_an_hour_after_its_pods_are_gone(node):
    node.pods(worker())
    failed = with_state(worker(phase="Failed"), ended("Error", 1, 60))
    put(node, failed)
    remove(node, failed)
    assert sums(node) == (1, 0, 0)
    node.now += KEPT_SECONDS - 60
    assert sums(node) == (1, 0, 0)
    node.now += 120
    assert sums(node) == (None, None, None)


def test_jobs_that_failed_and_are_gone_do_not_fill_the_page(node):
    node.pods()
    for number in range(1, 3 * MAX_GONE):
        data = with_state(
            pod(f"p{number}", number=number, limits={"nvidia.com/gpu": "1"}, phase="Failed"),
            ended("Error", 1, number),
        )
        put(node, data)
        node.now += 20
        node.collect()
        remove(node, data)
        node.collect()
    told = {labels[0] for labels in node.values(metrics.JOB_LAST_FAILURE)}
    assert told == {f"ml/p{number}" for number in range(2 * MAX_GONE, 3 * MAX_GONE)}


def test_nobody_fills_the_memory_with_jobs(node):
    node.pods()
    for number in range(MAX_JOBS + 5):
        put(node, pod(f"p{number}", number=number, limits={"nvidia.com/gpu": "1"}))
    assert len(node.values(metrics.JOB_FAILURES)) == MAX_JOBS
    assert node.values(metrics.JOB_HISTORIES_DROPPED) == {(): 5}


@pytest.mark.parametrize("completed", [MAX_JOBS - 1, MAX_JOBS, 2 * MAX_JOBS])
def test_completed_jobs_whose_pods_are_still_listed_cost_no_new_job_its_history(node, completed):
    limits = {"nvidia.com/gpu": "1"}
    node.pods(
        *(
            pod(f"sweep-{number}", number=number, limits=limits, phase="Succeeded")
            for number in range(10, completed + 10)
        )
    )
    put(node, worker())
    assert sums(node) == (0, 0, 0)
    put(node, with_state(worker(), ended("Error", 1, 60)))
    assert sums(node) == (1, 0, 0)
    assert node.values(metrics.JOB_HISTORIES_DROPPED) == {(): 0}


def test_nobody_fills_the_page_with_reasons(node):
    node.pods(worker())
    for number, code in enumerate((1, 126, 127, 134, 137, 139, 255)):
        put(node, with_state(worker(), ended("Error", code, number), restarts=number))
    assert len(newest(node)) == MAX_REASONS
    assert ("Error", "other") in newest(node)


def test_pods_of_the_web_are_no_job(node):
    node.pods()
    owner = ("apps/v1", "ReplicaSet", "web-1")
    put(node, with_state(pod("web-1-x", number=3, owner=owner), waits("CrashLoopBackOff")))
    assert sums(node, "ml/web-1") == (None, None, None)
    assert waiting(node) == {}
