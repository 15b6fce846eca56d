"""Objects and pods of a cluster become jobs: what belongs together, and what pods add to it."""

import pytest

from rankscope_agent.contract.metrics.job_status import JOB_ATTEMPT
from rankscope_analyzers.watch.job_samples import of_job
from rankscope_analyzers.workloads import kinds, pods
from rankscope_analyzers.workloads.jobs import jobs
from workload_objects import START, condition, kind, pod, thing

PYTORCH = {
    "training.kubeflow.org/job-name": "train",
    "training.kubeflow.org/replica-type": "worker",
}
NOW = START + 100


def read(*things):
    """Return what objects say; each is a row of the table of kinds with what `thing` takes."""
    return [kinds.read(of, thing(of, **fields)) for of, fields in things]


def seen(objects, found=(), now=NOW):
    facts = [pods.read(one) for one in found]
    return jobs(objects, [one for one in facts if one], now)


def test_what_a_job_owns_is_a_part_of_it():
    train, job_set, job = kind("TrainJob"), kind("JobSet"), kind("Job")
    objects = read(
        (train, {"uid": "t"}),
        (job_set, {"uid": "s", "owner": ("TrainJob", "train", "t")}),
        (job, {"uid": "j", "name": "train-node-0", "owner": ("JobSet", "train", "s")}),
    )
    (found,) = seen(objects, [pod("a", {"jobset.sigs.k8s.io/jobset-name": "train"})])
    assert (found.top.kind, found.job_id, found.gpus_held) == ("TrainJob", "team/train", 8)


def attempts(found):
    return [
        (sample.value, sample.labels)
        for job in found
        for sample in of_job(job, {})
        if sample.metric is JOB_ATTEMPT
    ]


def test_the_attempt_of_a_train_job_is_that_of_its_job_set():
    parts = read(
        (kind("TrainJob"), {"uid": "t"}),
        (
            kind("JobSet"),
            {"uid": "s", "owner": ("TrainJob", "train", "t"), "status": {"restarts": 2}},
        ),
        (
            kind("Job"),
            {"uid": "j", "name": "n", "owner": ("JobSet", "train", "s"), "status": {"failed": 7}},
        ),
    )
    assert attempts(seen(parts)) == [(2, ("team/train", "object"))]


@pytest.mark.parametrize(("pods_at_once", "expected"), [(1, [3]), (4, [])])
def test_failed_pods_of_a_job_are_attempts_where_it_has_one_at_a_time(pods_at_once, expected):
    fields = {"spec": {"parallelism": pods_at_once}, "status": {"failed": 3}}
    found = attempts(seen(read((kind("Job"), fields))))
    assert [value for value, _ in found] == expected


def test_an_owner_of_a_kind_that_nobody_knows_hides_no_job():
    (found,) = seen(read((kind("Job"), {"owner": ("Workflow", "nightly", "w")})))
    assert found.job_id == "team/train"


def test_the_runs_of_a_cron_job_are_ends_of_its_own():
    cron = ("CronJob", "nightly", "c")
    objects = read(
        (kind("CronJob"), {"uid": "c", "name": "nightly"}),
        (kind("Job"), {"uid": "1", "name": "nightly-1", "owner": cron}),
        (kind("Job"), {"uid": "2", "name": "nightly-2", "owner": cron}),
    )
    found = seen(objects)
    assert {one.job_id for one in found} == {"team/nightly"}
    assert {one.top.uid for one in found} == {"c", "1", "2"}


def workload(*conditions, **status):
    fields = {"name": "w", "owner": ("PyTorchJob", "train", "uid-PyTorchJob-train")}
    return kind("Workload"), {**fields, "status": {"conditions": list(conditions), **status}}


def test_a_job_that_its_queue_has_not_admitted_waits_for_quota():
    suspended = {"conditions": [condition("Suspended")]}
    objects = read((kind("PyTorchJob"), {"status": suspended}), workload())
    (found,) = seen(objects)
    assert (found.state, dict(found.waiting)) == ("queued", {"quota": 100.0})


def test_a_preempted_job_that_is_requeued_is_queued_and_counts_its_interruptions():
    objects = read(
        (kind("PyTorchJob"), {"status": {"conditions": [condition("Suspended")]}}),
        workload(condition("Evicted", reason="Preempted"), requeueState={"count": 2}),
    )
    (found,) = seen(objects)
    assert (found.state, found.interruptions) == ("queued", 2)


def test_a_job_that_somebody_suspended_waits_for_nothing():
    (found,) = seen(
        read((kind("PyTorchJob"), {"status": {"conditions": [condition("Suspended")]}}))
    )
    assert (found.state, dict(found.waiting)) == ("suspended", {})


def test_the_time_in_the_queue_is_a_phase_of_the_start():
    objects = read((kind("PyTorchJob"), {}), workload(condition("Admitted", 40)))
    (found,) = seen(objects, [pod("a", PYTORCH, created=41, scheduled=45, started=60)])
    assert dict(found.startup) == {"queue": 40.0, "schedule": 4.0, "init": 0.0, "image": 15.0}


def test_the_slowest_pod_counts_and_a_phase_that_goes_on_is_none():
    objects = read((kind("PyTorchJob"), {}))
    fast = pod("a", PYTORCH, created=1, scheduled=3, started=10)
    slow = pod("b", PYTORCH, created=1, scheduled=21, started=None, waiting="PodInitializing")
    (found,) = seen(objects, [fast, slow])
    assert dict(found.startup) == {"schedule": 20.0}


def test_a_gang_with_a_member_that_has_no_node_holds_its_gpus_waiting():
    objects = read((kind("PyTorchJob"), {}))
    message = "0/9 nodes are available: 4 Insufficient nvidia.com/gpu, 5 node(s) had taints"
    unschedulable = condition("PodScheduled", 2, "Unschedulable", message, status="False")
    free = pod("b", PYTORCH, scheduled=None, phase="Pending", conditions=[unschedulable])
    (found,) = seen(objects, [pod("a", PYTORCH), free])
    assert (found.unscheduled, found.gpus_held, found.gpus_waiting) == (1, 8, 8)
    assert dict(found.waiting) == {"no_gpu": 99.0}


def test_the_pods_of_an_earlier_job_of_the_same_name_are_not_its():
    objects = read((kind("PyTorchJob"), {"created": 50}))
    (found,) = seen(objects, [pod("old", PYTORCH, created=10), pod("new", PYTORCH, created=51)])
    assert found.gpus_held == 8


def failed(*found, words="", queue=()):
    status = {"conditions": [condition("Failed", reason=words)]}
    objects = read((kind("PyTorchJob"), {"status": status}), *queue)
    (one,) = seen(objects, found)
    return one.cause


def ended(name, reason, code, at, **more):
    return pod(name, PYTORCH, phase="Failed", ended=(reason, code, at), **more)


def test_pods_know_why_where_the_job_itself_is_vague():
    assert failed() == "unknown"
    assert failed(ended("a", "OOMKilled", 137, 50)) == "oom"
    assert failed(ended("a", "Error", 1, 50)) == "application"
    evicted = {"reason": "Evicted"}
    assert failed(ended("a", "Error", 137, 50, more=evicted)) == "evicted"
    assert failed(ended("a", "OOMKilled", 137, 50), words="DeadlineExceeded") == "deadline"


def test_the_first_failure_with_a_cause_of_its_own_counts():
    spot = condition("DisruptionTarget", 40, "DeletionByTaintManager")
    others = [ended("a", "Error", 1, 45), ended("c", "OOMKilled", 137, 60)]
    assert failed(*others, ended("b", "Error", 143, 41, conditions=[spot])) == "node"


def test_a_queue_knows_why_where_neither_does():
    preempted = workload(condition("Evicted", reason="Preempted"))
    assert failed(queue=[preempted]) == "preempted"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ImagePullBackOff", "image"),
        ("ErrImagePull", "image"),
        ("CreateContainerConfigError", "config"),
        ("ContainerCreating", "other"),
        ("SomethingNew", "other"),
    ],
)
def test_why_a_pod_with_a_node_does_not_run(reason, expected):
    assert pods.read(pod("a", PYTORCH, started=None, waiting=reason)).waiting == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "no_gpu"),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/mig-1g.5gb.", "no_gpu"),
        ("0/3 nodes: 3 cannot allocate all claims", "no_gpu"),
        ("0/3 nodes are available: 3 Insufficient memory.", "resources"),
        ("3 node(s) didn't match Pod's node affinity/selector.", "affinity"),
        ("3 node(s) had untolerated taint {gpu: true}", "taint"),
        ("pod has unbound immediate PersistentVolumeClaims", "pvc"),
        ("rejected by pod group team/train: 3 of 4 members", "gang"),
        ("", "other"),
        (None, "other"),
        (7, "other"),
    ],
)
def test_why_a_pod_gets_no_node(message, expected):
    assert pods.unschedulable(message) == expected


def test_a_gated_pod_waits_for_its_queue():
    gated = condition("PodScheduled", 2, "SchedulingGated", status="False")
    found = pods.read(pod("a", PYTORCH, scheduled=None, phase="Pending", conditions=[gated]))
    assert found.waiting == "quota"


@pytest.mark.parametrize("limits", [{"nvidia.com/gpu": "8"}, {"nvidia.com/mig-1g.5gb": 8}])
def test_gpus_and_parts_of_them_count(limits):
    spec = {"containers": [{"resources": {"limits": {**limits, "cpu": "4"}}}]}
    assert pods.gpus(spec) == 8


@pytest.mark.parametrize("limit", ["9" * 30, "-1", "1.5", None, [], "many"])
def test_a_number_of_gpus_that_makes_no_sense_is_none(limit):
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": limit}}}]}
    assert pods.gpus(spec) == 0


def test_claimed_devices_count_one_each():
    assert pods.gpus({"containers": [], "resourceClaims": [{"name": "gpu"}]}) == 1


@pytest.mark.parametrize("field", ["metadata", "spec", "status"])
@pytest.mark.parametrize("junk", [None, 3, "x", [], {"containerStatuses": [None, 3, {}]}])
def test_a_pod_of_another_shape_harms_nothing(field, junk):
    found = pod("a", PYTORCH)
    found[field] = junk
    read_pod = pods.read(found)
    assert read_pod is None or read_pod.namespace == "team"


def test_a_pod_of_no_job_is_none():
    assert pods.read(pod("web", {"app": "web"})) is None
