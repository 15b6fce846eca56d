"""What the agent says of failures of a job's pods: each once, with its reason and detail."""

import pytest

from job_status_page import JOB, newest, node, put, remove, sums
from pod_states import deleted, disrupted, ended, evicted, with_state, worker
from rankscope_agent.contract import pod_reasons
from rankscope_agent.contract.metrics import job_status as metrics
from rankscope_agent.sources.pods.records import parse_pod

__all__ = ["node"]


@pytest.mark.parametrize(
    ("reason", "code", "detail"),
    [
        ("Error", 1, "application"),
        ("OOMKilled", 137, "sigkill"),
        ("Error", 134, "sigabrt"),
        ("Error", 139, "sigsegv"),
        ("Error", 127, "not_found"),
        ("Error", 192, "signal"),
        ("Error", 255, "other"),
        ("ContainerCannotRun", 126, "not_executable"),
    ],
)
def test_a_container_that_failed_is_counted_once_with_the_class_of_its_exit_code(
    node, reason, code, detail
):
    node.pods(worker())
    assert sums(node) == (0, 0, 0)
    end = ended(reason, code, 60)
    put(node, with_state(worker(), end))
    put(node, with_state(worker(), {"running": {}}, last=end, restarts=1))
    assert sums(node) == (1, 1, 0)
    assert newest(node) == {(reason, detail): 60.0}


def test_a_failed_init_container_is_told_as_such(node):
    node.pods(with_state(worker(), {"running": {}}, init=True))
    put(node, with_state(worker(), ended("Error", 1, 30), init=True))
    assert newest(node) == {("Init:Error", "application"): 30.0}
    assert sums(node) == (1, 0, 0)


def test_an_init_container_that_ran_at_its_second_try_has_failed_once(node):
    node.pods(with_state(worker(), {"running": {}}, init=True))
    failed = ended("Error", 1, 30)
    put(node, with_state(worker(), failed, init=True))
    done = ended("Completed", 0, 50)
    put(node, with_state(worker(), done, last=failed, restarts=1, init=True))
    assert sums(node) == (1, 1, 0)


def test_an_evicted_pod_failed_as_a_whole_once(node):
    node.pods(worker())
    put(node, evicted(worker(), 90))
    assert newest(node) == {("Evicted", ""): 90.0}
    assert sums(node) == (1, 0, 0)


def test_what_failed_before_it_was_deleted_failed(node):
    """The operator deletes what failed with a retryable code (restartPolicy ExitCode)."""
    node.pods(worker(number=1))
    failed = with_state(worker(number=1, phase="Failed"), ended("Error", 139, 40))
    put(node, failed)
    put(node, deleted(failed, 42, grace=0))
    remove(node, failed)
    put(node, worker(number=2))
    assert sums(node) == (1, 1, 0)
    assert newest(node) == {("Error", "sigsegv"): 40.0}
    assert node.values(metrics.JOB_CONTAINER_RESTARTS) == {(JOB,): 0}


def test_memory_that_ran_out_while_a_pod_ended_is_told(node):
    node.pods(worker())
    put(node, deleted(with_state(worker(), ended("OOMKilled", 137, 60)), 50))
    assert newest(node) == {("OOMKilled", "sigkill"): 60.0}


def test_what_happened_before_the_agent_came_is_known_by_its_time_and_not_counted(node):
    old = with_state(worker(), {"running": {}}, last=ended("OOMKilled", 137, 10), restarts=7)
    node.pods(old)
    assert sums(node) == (0, 0, 0)
    assert newest(node) == {("OOMKilled", "sigkill"): 10.0}
    assert node.values(metrics.JOB_CONTAINER_RESTARTS) == {(JOB,): 7}


def test_what_happened_while_the_watch_was_broken_is_counted_by_the_next_list(node):
    node.pods(worker())
    end = ended("Error", 1, 60)
    node.pods(with_state(worker(), {"running": {}}, last=end, restarts=3))
    assert sums(node) == (1, 3, 0)


def test_a_completed_job_tells_nothing(node):
    node.pods(worker())
    put(node, with_state(worker(phase="Succeeded"), ended("Completed", 0, 60)))
    assert sums(node) == (None, None, None)
    assert newest(node) == {}


def test_a_sidecar_that_is_ended_with_its_pod_has_not_failed(node):
    data = with_state(worker(phase="Succeeded"), ended("Completed", 0, 60))
    data["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]
    data["status"]["initContainerStatuses"] = [{"name": "proxy", "state": ended("Error", 137, 61)}]
    node.pods(worker())
    put(node, data)
    assert newest(node) == {}


def test_a_moment_in_the_future_is_now(node):
    node.pods(worker())
    put(node, with_state(worker(), ended("Error", 1, 9999)))
    assert newest(node) == {("Error", "application"): 3000.0}


@pytest.mark.parametrize("value", [None, 3, "x", [], ["x"], {"terminated": 3}, {"waiting": []}])
def test_states_of_a_wrong_type_are_none(value):
    data = worker()
    data["status"]["containerStatuses"] = [{"name": "main", "state": value, "lastState": value}]
    data["status"]["conditions"] = value
    found = parse_pod(data)
    assert (found.containers[0].waiting, found.containers[0].failure) == ("", None)
    assert (found.failure, found.disruption) == (None, None)


def test_no_word_of_a_pod_becomes_a_label(node):
    """Whoever may write a pod's status chooses its reasons."""
    node.pods(worker())
    data = with_state(worker(phase="Failed"), ended("x" * 200, 300, 5), last=ended("y", 1, 1))
    data["status"]["reason"] = "z" * 200
    put(node, disrupted(data, "w" * 200, 3))
    allowed = {pod_reasons.OTHER, pod_reasons.DISRUPTED, ""}
    assert {word for key in newest(node) for word in key} <= allowed


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((0, "completed"), (1, "application"), (125, "application"), (128, "other")),
        *((129, "signal"), (192, "signal"), (193, "other"), (200, "other"), (-1, "other")),
    ],
)
def test_exit_codes_are_those_of_programs_up_to_125_and_of_64_signals(code, kind):
    assert pod_reasons.exit_class(code) == kind
