"""What the agent tells of a job's pods: waits, failures, restarts, preemptions, attempts."""

import pytest

from pod_json import pod
from pod_states import (
    BEGIN,
    PYTORCH_JOB,
    deleted,
    disrupted,
    ended,
    evicted,
    waits,
    with_state,
    worker,
)
from rankscope_agent.contract import pod_reasons
from rankscope_agent.contract.metrics import job_status as metrics
from rankscope_agent.sources.pods.records import parse_pod
from test_pods_collector import Kubelet, Node

KEPT_SECONDS = 3600.0
LOOP_SECONDS = 600.0
MAX_GONE = 4
MAX_JOBS = 256
MAX_REASONS = 4
JOB = "ml/llm"


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path, Kubelet())
    made.now = BEGIN + 3000.0
    return made


def put(node, data):
    node.directory.put(parse_pod(data), node.now)


def remove(node, data):
    node.directory.remove(data["metadata"]["uid"], node.now)


def sums(node, job=JOB):
    """Return failed, restarted and preempted of a job; None where there is no such series."""
    return tuple(
        node.values(metric).get((job,))
        for metric in (metrics.JOB_FAILURES, metrics.JOB_RESTARTS, metrics.JOB_PREEMPTIONS)
    )


def newest(node):
    """Return failures by reason and detail, as seconds of the story."""
    found = node.values(metrics.JOB_LAST_FAILURE)
    return {labels[1:]: value - BEGIN for labels, value in found.items()}


def waiting(node):
    return {labels[1]: n for labels, n in node.values(metrics.JOB_WAITING_PODS).items()}


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


def test_an_evicted_pod_failed_as_a_whole_once(node):
    node.pods(worker())
    put(node, evicted(worker(), 90))
    assert newest(node) == {("Evicted", ""): 90.0}
    assert sums(node) == (1, 0, 0)


@pytest.mark.parametrize("who", ["PreemptionByScheduler", "DeletionByTaintManager"])
def test_a_pod_that_is_taken_away_is_preempted_and_has_not_failed(node, who):
    node.pods(worker())
    put(node, disrupted(worker(), who, 100))
    put(node, deleted(disrupted(worker(), who, 100), 100))
    killed = with_state(worker(), ended("Error", 143, 105))
    put(node, deleted(disrupted(killed, who, 100), 100))
    assert newest(node) == {("DisruptionTarget", who): 100.0}
    assert sums(node) == (0, 0, 1)


def test_a_disruption_that_did_not_come_to_pass_is_none(node):
    data = disrupted(worker(), "PreemptionByScheduler", 100)
    data["status"]["conditions"][0]["status"] = "False"
    node.pods(worker(1, number=2))
    put(node, data)
    assert sums(node) == (0, 0, 0)


def test_a_rolling_restart_is_no_failure(node):
    node.pods(worker(number=1))
    put(node, deleted(worker(number=1), 50))
    put(node, deleted(with_state(worker(number=1), ended("Error", 137, 80)), 50))
    remove(node, worker(number=1))
    put(node, with_state(worker(number=2, phase="Pending"), waits("ContainerCreating")))
    put(node, worker(number=2))
    assert sums(node) == (0, 1, 0)
    assert newest(node) == {}


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


def test_a_job_that_is_made_anew_under_its_name_was_not_restarted(node):
    node.pods(worker(number=1))
    remove(node, worker(number=1))
    again = worker(number=2)
    again["metadata"]["ownerReferences"][0]["uid"] = "another-owner"
    put(node, again)
    assert sums(node) == (0, 0, 0)


def of_job_set(index, job_index, *, number, suffix, job_uid="job-1"):
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "set",
        "jobset.sigs.k8s.io/jobset-uid": "jobset-1",
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/restart-attempt": str(number // 10),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    name = f"set-workers-{job_index}-{index}-{suffix}"
    made = pod(name, number=number, labels=labels, owner=("batch/v1", "Job", f"set-{job_index}"))
    made["metadata"]["ownerReferences"][0]["uid"] = job_uid
    return made


def test_pods_of_one_index_in_two_jobs_of_a_set_are_two(node):
    node.pods(of_job_set(0, 0, number=1, suffix="bcdfg"))
    put(node, of_job_set(0, 1, number=2, suffix="hjklm", job_uid="job-2"))
    assert sums(node, "ml/set") == (0, 0, 0)


def test_a_restarted_set_makes_its_pods_anew_and_counts_its_attempt(node):
    old = of_job_set(0, 0, number=1, suffix="bcdfg")
    node.pods(old)
    remove(node, old)
    put(node, of_job_set(0, 0, number=12, suffix="xz245", job_uid="job-9"))
    assert sums(node, "ml/set") == (0, 1, 0)
    assert node.values(metrics.JOB_ATTEMPT) == {("ml/set", "launcher"): 1}


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


def test_nobody_fills_the_page_with_reasons(node):
    node.pods(worker())
    for number, code in enumerate((1, 126, 127, 134, 137, 139, 255)):
        put(node, with_state(worker(), ended("Error", code, number), restarts=number))
    assert len(newest(node)) == MAX_REASONS
    assert ("Error", "other") in newest(node)


def test_pods_that_are_made_anew_minutes_later_are_restarts_all_the_same(node):
    old = of_job_set(0, 0, number=1, suffix="bcdfg")
    node.pods(old)
    remove(node, old)
    node.now += 60
    node.collect()
    node.now += 60
    put(node, of_job_set(0, 0, number=12, suffix="xz245", job_uid="job-9"))
    assert sums(node, "ml/set") == (0, 1, 0)


def test_a_moment_in_the_future_is_now(node):
    node.pods(worker())
    put(node, with_state(worker(), ended("Error", 1, 9999)))
    assert newest(node) == {("Error", "application"): 3000.0}


def test_pods_of_the_web_are_no_job(node):
    node.pods()
    owner = ("apps/v1", "ReplicaSet", "web-1")
    put(node, with_state(pod("web-1-x", number=3, owner=owner), waits("CrashLoopBackOff")))
    assert sums(node, "ml/web-1") == (None, None, None)
    assert waiting(node) == {}


def test_restarts_by_torchrun_and_how_many_are_left(node, tmp_path):
    cid = "ab" * 32
    env = {"PET_NNODES": "2:4", "PET_MAX_RESTARTS": "3", "PET_NPROC_PER_NODE": "1"}
    node.pods(pod("w0", number=1, container_id=cid, owner=PYTORCH_JOB, env=env))
    node.process(
        10,
        1,
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="4",
        TORCHELASTIC_RUN_ID="x",
        TORCHELASTIC_RESTART_COUNT="2",
    )
    assert node.values(metrics.JOB_ATTEMPT) == {(JOB, "torchrun"): 2}
    assert node.values(metrics.JOB_RESTARTS_LEFT) == {(JOB,): 1}
    assert node.values(metrics.JOB_ELASTIC_PODS) == {(JOB, "min"): 2, (JOB, "max"): 4}
    node.directory.note_probed(frozenset({(JOB, 0)}), {JOB: 3})
    assert node.values(metrics.JOB_ATTEMPT) == {(JOB, "torchrun"): 3}
    assert node.values(metrics.JOB_RESTARTS_LEFT) == {(JOB,): 0}


@pytest.mark.parametrize("nnodes", ["4", "4:2", ":4", "2:", "a:b", ""])
def test_what_is_no_range_of_pods_is_not_told(node, nnodes):
    node.pods(pod("w0", owner=PYTORCH_JOB, env={"PET_NNODES": nnodes}))
    assert node.values(metrics.JOB_ELASTIC_PODS) == {}


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
