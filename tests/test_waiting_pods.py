"""What the agent says of pods that wait: for what, and which are in a crash loop."""

import pytest

from job_status_page import JOB, newest, node, put, remove, sums, waiting
from pod_states import BEGIN, deleted, ended, waits, with_state, worker
from rankscope_agent.contract.metrics import job_status as metrics

__all__ = ["node"]

LOOP_SECONDS = 600.0


@pytest.mark.parametrize("init", [False, True])
@pytest.mark.parametrize(
    ("reason", "named"),
    [
        ("CrashLoopBackOff", "CrashLoopBackOff"),
        ("CreateContainerConfigError", "CreateContainerConfigError"),
        ("ImagePullBackOff", "ImagePullBackOff"),
        ("ErrImagePull", "ImagePullBackOff"),
        ("ImageInspectError", "ImagePullBackOff"),
        ("RegistryUnavailable", "ImagePullBackOff"),
        ("SignatureValidationFailed", "ImagePullBackOff"),
        ("InvalidImageName", "InvalidImageName"),
        ("ATypoOfARuntime", "other"),
    ],
)
def test_why_a_container_waits_stands_on_the_page_as_kubectl_shows_it(node, reason, named, init):
    node.pods(worker(1, number=2))
    put(node, with_state(worker(), waits(reason), init=init))
    assert waiting(node) == {f"Init:{named}" if init else named: 1}


def test_a_pod_that_starts_waits_for_no_fault(node):
    node.pods(with_state(worker(phase="Pending"), waits("ContainerCreating")))
    assert waiting(node) == {"ContainerCreating": 1}
    init = with_state(worker(), {"running": {}}, init=True)
    node.pods(init)
    assert waiting(node) == {"PodInitializing": 1}


def test_an_ended_or_deleted_pod_waits_for_nothing(node):
    gone = deleted(with_state(worker(), waits("CrashLoopBackOff")), 10)
    over = with_state(worker(1, number=2, phase="Failed"), waits("ImagePullBackOff"))
    node.pods(gone, over)
    assert waiting(node) == {}


def test_a_crash_loop_counts_each_crash(node):
    node.pods(worker())
    last = None
    for number in range(1, 5):
        end = ended("Error", 1, 60.0 * number)
        put(node, with_state(worker(), end, last=last, restarts=number - 1))
        put(node, with_state(worker(), waits("CrashLoopBackOff"), last=end, restarts=number - 1))
        put(node, with_state(worker(), {"running": {}}, last=end, restarts=number))
        last = end
    assert sums(node) == (4, 4, 0)
    assert node.values(metrics.JOB_CONTAINER_RESTARTS) == {(JOB,): 4}
    assert newest(node) == {("Error", "application"): 240.0}


def test_a_pod_stays_in_its_crash_loop_while_its_container_runs_for_a_moment(node):
    node.now = BEGIN + 100
    node.pods(worker())
    first, second = ended("Error", 1, 60), ended("Error", 1, 90)
    put(node, with_state(worker(), {"running": {}}, last=first, restarts=1))
    assert waiting(node) == {}
    put(node, with_state(worker(), {"running": {}}, last=second, restarts=2))
    assert waiting(node) == {"CrashLoopBackOff": 1}
    node.now = BEGIN + 90 + LOOP_SECONDS
    assert waiting(node) == {}


def test_two_failures_far_apart_are_no_crash_loop(node):
    node.pods(with_state(worker(), {"running": {}}, last=ended("Error", 1, 60), restarts=7))
    put(node, with_state(worker(), {"running": {}}, last=ended("Error", 1, 2900), restarts=8))
    assert waiting(node) == {}


def test_a_pod_that_is_gone_is_in_no_crash_loop(node):
    node.pods(worker(), worker(1, number=2))
    loop = with_state(worker(), waits("CrashLoopBackOff"), last=ended("Error", 1, 2990))
    put(node, loop)
    assert waiting(node) == {"CrashLoopBackOff": 1}
    remove(node, loop)
    assert waiting(node) == {}
    put(node, loop)
    node.pods(worker(1, number=2))
    assert node.directory.looping(node.now) == {}
