"""Each kind of job of the cluster goes through its lifecycles as its API types have them."""

import pytest

from rankscope_analyzers.workloads import kinds
from rankscope_analyzers.workloads.kinds import KINDS, read
from rankscope_analyzers.workloads.state import CAUSES, STATES
from workload_objects import START, condition, kind, stamp, thing

KUBEFLOW = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
SPECS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}


def seen(of, spec, status):
    """Return state, outcome and cause."""
    found = read(of, thing(of, spec, status)).progress
    assert found.state in STATES
    assert found.cause in CAUSES
    return found.state, found.outcome, found.cause


def c(*conditions):
    return {"conditions": list(conditions)}


CREATED, RUNNING = condition("Created", 1), condition("Running", 30)
NOT_RUNNING = condition("Running", 30, status="False")
GOING_ON = ("", "")

OPERATOR = {
    "new": ({}, ("pending", *GOING_ON)),
    "created": (c(CREATED), ("pending", *GOING_ON)),
    "running": (c(CREATED, RUNNING), ("running", *GOING_ON)),
    "restarting": (c(CREATED, NOT_RUNNING, condition("Restarting")), ("restarting", *GOING_ON)),
    "suspended": (c(CREATED, NOT_RUNNING, condition("Suspended")), ("suspended", *GOING_ON)),
    "success": (c(CREATED, NOT_RUNNING, condition("Succeeded")), ("succeeded", "succeeded", "")),
    "failure": (
        c(CREATED, NOT_RUNNING, condition("Failed", reason="PyTorchJobFailed")),
        ("failed", "failed", "unknown"),
    ),
    "backoff": (
        c(condition("Failed", message="it has reached the specified backoff limit")),
        ("failed", "failed", "retries"),
    ),
    "deadline": (
        c(condition("Failed", message="was active longer than specified deadline")),
        ("failed", "failed", "deadline"),
    ),
    "evicted": (
        c(condition("Failed", reason="MPIJobEvicted", message="1/2 workers are evicted")),
        ("failed", "failed", "evicted"),
    ),
    "strange": (c(condition("Levitating")), ("unknown", *GOING_ON)),
    "strange_and_running": (c(condition("Levitating"), RUNNING), ("running", *GOING_ON)),
}


@pytest.mark.parametrize("name", KUBEFLOW)
@pytest.mark.parametrize("step", OPERATOR)
def test_jobs_of_the_training_operator(name, step):
    status, expected = OPERATOR[step]
    assert seen(kind(name), {}, status) == expected


@pytest.mark.parametrize("name", KUBEFLOW)
def test_replicas_elasticity_and_times_of_the_training_operator(name):
    spec = {
        SPECS[name]: {"Master": {"replicas": 1}, "Worker": {"replicas": 4}},
        "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4},
        "runPolicy": {"suspend": True, "schedulingPolicy": {"queue": "gold", "minAvailable": 5}},
    }
    status = {
        **c(condition("Succeeded", 90)),
        "startTime": stamp(20),
        "completionTime": stamp(80),
        "replicaStatuses": {"Worker": {"active": 3, "failed": 1}},
    }
    found = read(kind(name), thing(kind(name), spec, status)).progress
    master, worker = found.replicas
    assert (master.role, master.wanted, master.active) == ("master", 1, 0)
    assert (worker.role, worker.wanted, worker.active, worker.failed) == ("worker", 4, 3, 1)
    assert (found.started, found.ended) == (START + 20, START + 80)
    assert (found.elastic, found.suspended, found.queue, found.gang) == ((2, 4), True, "gold", 5)


def test_an_end_without_completion_time_is_that_of_its_condition():
    found = read(kind("TFJob"), thing(kind("TFJob"), {}, c(condition("Failed", 70))))
    assert found.progress.ended == START + 70


BATCH = {
    ("Job", "new"): ({}, {}, ("pending", *GOING_ON)),
    ("Job", "suspended"): (
        {"suspend": True},
        c(condition("Suspended", reason="JobSuspended")),
        ("suspended", *GOING_ON),
    ),
    ("Job", "running"): ({}, {"active": 4}, ("running", *GOING_ON)),
    ("Job", "nearly"): (
        {},
        {"active": 1, **c(condition("SuccessCriteriaMet"))},
        ("running", *GOING_ON),
    ),
    ("Job", "failing"): (
        {},
        {"active": 1, **c(condition("FailureTarget"))},
        ("running", *GOING_ON),
    ),
    ("Job", "success"): ({}, c(condition("Complete")), ("succeeded", "succeeded", "")),
    ("Job", "backoff"): (
        {},
        c(condition("Failed", reason="BackoffLimitExceeded")),
        ("failed", "failed", "retries"),
    ),
    ("Job", "deadline"): (
        {},
        c(condition("Failed", reason="DeadlineExceeded")),
        ("failed", "failed", "deadline"),
    ),
    ("Job", "policy"): (
        {},
        c(condition("Failed", reason="PodFailurePolicy")),
        ("failed", "failed", "application"),
    ),
    ("Job", "indexes"): (
        {"completionMode": "Indexed"},
        c(condition("Failed", reason="MaxFailedIndexesExceeded")),
        ("failed", "failed", "retries"),
    ),
    ("CronJob", "idle"): ({}, {}, ("pending", *GOING_ON)),
    ("CronJob", "running"): ({}, {"active": [{"name": "a"}]}, ("running", *GOING_ON)),
    ("CronJob", "suspended"): ({"suspend": True}, {}, ("suspended", *GOING_ON)),
    ("JobSet", "new"): ({}, {}, ("pending", *GOING_ON)),
    ("JobSet", "running"): (
        {"replicatedJobs": [{"name": "w", "replicas": 2}]},
        {"replicatedJobsStatus": [{"name": "w", "active": 2, "ready": 2}]},
        ("running", *GOING_ON),
    ),
    ("JobSet", "restarting"): (
        {},
        {"restarts": 2, **c(condition("RestartingJobSet"))},
        ("restarting", *GOING_ON),
    ),
    ("JobSet", "suspended"): (
        {"suspend": True},
        c(condition("Suspended")),
        ("suspended", *GOING_ON),
    ),
    ("JobSet", "success"): ({}, c(condition("Completed")), ("succeeded", "succeeded", "")),
    ("JobSet", "too_often"): (
        {},
        c(condition("Failed", reason="ReachedMaxRestarts")),
        ("failed", "failed", "retries"),
    ),
    ("JobSet", "failure"): (
        {},
        c(condition("Failed", reason="FailedJobs")),
        ("failed", "failed", "application"),
    ),
    ("TrainJob", "new"): ({}, {}, ("pending", *GOING_ON)),
    ("TrainJob", "running"): (
        {},
        {"jobsStatus": [{"name": "node", "active": 2}]},
        ("running", *GOING_ON),
    ),
    ("TrainJob", "suspended"): (
        {"suspend": True},
        c(condition("Suspended")),
        ("suspended", *GOING_ON),
    ),
    ("TrainJob", "success"): ({}, c(condition("Complete")), ("succeeded", "succeeded", "")),
    ("TrainJob", "unsupported"): (
        {},
        c(condition("Failed", reason="TrainingRuntimeNotSupported")),
        ("failed", "failed", "config"),
    ),
    ("TrainJob", "deadline"): (
        {},
        c(condition("Failed", reason="DeadlineExceeded")),
        ("failed", "failed", "deadline"),
    ),
}


@pytest.mark.parametrize(("name", "step"), BATCH)
def test_jobs_of_kubernetes_and_what_builds_on_them(name, step):
    spec, status, expected = BATCH[name, step]
    assert seen(kind(name), spec, status) == expected


def phase(name, **more):
    return {"state": {"phase": name, "lastTransitionTime": stamp(90), **more}}


VOLCANO = {
    "Pending": ("pending", *GOING_ON),
    "Running": ("running", *GOING_ON),
    "Restarting": ("restarting", *GOING_ON),
    "Completing": ("running", *GOING_ON),
    "Aborted": ("suspended", *GOING_ON),
    "Completed": ("succeeded", "succeeded", ""),
    "Failed": ("failed", "failed", "unknown"),
    "Terminated": ("failed", "failed", "terminated"),
    "Dreaming": ("unknown", *GOING_ON),
}


@pytest.mark.parametrize("name", VOLCANO)
def test_jobs_of_volcano(name):
    assert seen(kind("Job", "batch.volcano.sh"), {}, phase(name)) == VOLCANO[name]


def test_what_else_a_job_of_volcano_says():
    spec = {"queue": "q", "minAvailable": 3, "tasks": [{"name": "worker", "replicas": 4}]}
    counts = {"worker": {"phase": {"Running": 3, "Failed": 1}}}
    ran = [
        {"status": "Running", "lastTransitionTime": stamp(25)},
        {"status": "Restarting", "lastTransitionTime": stamp(40)},
        {"status": "Running", "lastTransitionTime": stamp(50)},
    ]
    status = {**phase("Failed"), "retryCount": 2, "taskStatusCount": counts, "conditions": ran}
    of = kind("Job", "batch.volcano.sh")
    found = read(of, thing(of, spec, status)).progress
    assert (found.attempt, found.queue, found.gang) == (2, "q", 3)
    assert (found.started, found.ended) == (START + 25, START + 90)
    (worker,) = found.replicas
    assert (worker.wanted, worker.active, worker.failed) == (4, 3, 1)


def kueue(*conditions, **more):
    of = kind("Workload")
    spec = {"queueName": "local", "podSets": [{"name": "main", "count": 8, "minCount": 4}]}
    return read(of, thing(of, spec, {**c(*conditions), **more})).progress


def test_a_workload_of_kueue_waits_runs_is_preempted_requeued_and_ends():
    assert kueue().state == "queued"
    reserved = condition("QuotaReserved", 10)
    assert kueue(reserved).state == "queued"
    admitted = kueue(
        reserved, condition("Admitted", 12), admission={"clusterQueue": "gold", "podSets": []}
    )
    assert (admitted.state, admitted.queue, admitted.started) == ("running", "gold", START + 12)
    assert admitted.elastic == (4, 8)
    preempted = kueue(
        condition("Evicted", 40, reason="Preempted"),
        condition("Preempted", 40, reason="InClusterQueue"),
        schedulingStats={"evictions": [{"reason": "Preempted", "count": 3}]},
    )
    assert (preempted.state, preempted.interrupted, preempted.interruptions) == (
        *("queued", "preempted"),
        3,
    )
    again = kueue(condition("Requeued", 50), requeueState={"count": 2})
    assert (again.state, again.interruptions) == ("queued", 2)
    timeout = kueue(condition("Evicted", 40, reason="PodsReadyTimeout"))
    assert timeout.interrupted == "queue_timeout"
    lost = kueue(condition("Evicted", 40, reason="NodeFailures"))
    assert lost.interrupted == "node"
    assert kueue(condition("Finished", 80, reason="Succeeded")).outcome == "succeeded"
    failed = kueue(condition("Finished", 80, reason="Failed"))
    assert (failed.outcome, failed.ended) == ("failed", START + 80)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", ("pending", "")),
        ("Scheduling", ("pending", "")),
        ("Running", ("running", "")),
        ("Finished", ("succeeded", "succeeded")),
        ("Failed", ("failed", "failed")),
        ("Unknown", ("unknown", "")),
    ],
)
def test_pod_groups(name, expected):
    assert seen(kind("PodGroup"), {"minMember": 4}, {"phase": name})[:2] == expected


RAY = {
    ("", ""): ("pending", *GOING_ON),
    ("Initializing", "PENDING"): ("pending", *GOING_ON),
    ("Running", "RUNNING"): ("running", *GOING_ON),
    ("Running", "FAILED"): ("running", *GOING_ON),  # the deployment decides whether to retry
    ("Retrying", "FAILED"): ("restarting", *GOING_ON),
    ("Suspended", ""): ("suspended", *GOING_ON),
    ("Complete", "SUCCEEDED"): ("succeeded", "succeeded", ""),
    ("Complete", "STOPPED"): ("failed", "cancelled", ""),
    ("Failed", "FAILED"): ("failed", "failed", "application"),
    ("ValidationFailed", ""): ("failed", "failed", "config"),
}


@pytest.mark.parametrize(("deployment", "job"), RAY)
def test_ray_jobs(deployment, job):
    status = {"jobDeploymentStatus": deployment, "jobStatus": job, "startTime": stamp(9)}
    if deployment == "Failed":
        status["reason"] = "AppFailed"
    assert seen(kind("RayJob"), {}, status) == RAY[deployment, job]


def test_the_workers_of_a_ray_job_shrink_and_grow():
    groups = [{"replicas": 4, "minReplicas": 2, "maxReplicas": 6}]
    spec = {"rayClusterSpec": {"workerGroupSpecs": groups}}
    status = {
        "jobDeploymentStatus": "Running",
        "rayClusterStatus": {"desiredWorkerReplicas": 3, "availableWorkerReplicas": 2},
    }
    found = read(kind("RayJob"), thing(kind("RayJob"), spec, status)).progress
    assert (found.elastic, found.replicas[0].wanted, found.replicas[0].active) == ((2, 6), 3, 2)


def test_leader_worker_sets_serve_and_never_end():
    of = kind("LeaderWorkerSet")
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 4}}
    assert seen(of, spec, {}) == ("pending", *GOING_ON)
    ready = {"readyReplicas": 1, **c(condition("Progressing"))}
    assert seen(of, spec, ready) == ("running", *GOING_ON)


JUNK = (None, 1, "x", [], {}, [1], {"conditions": 3}, {"conditions": [1, {"type": 2}]}, True)


@pytest.mark.parametrize("of", KINDS, ids=lambda of: of.resource)
@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_fields_of_another_type_count_as_missing(of, junk):
    found = thing(of)
    found["spec"] = found["status"] = junk
    assert read(of, found).progress.outcome == ""
    for key in ("conditions", "state", "replicaStatuses", "podSets", "tasks", "jobsStatus"):
        found["status"] = found["spec"] = {key: junk, "pytorchReplicaSpecs": junk}
        assert read(of, found).progress.outcome == ""


@pytest.mark.parametrize("lost", ["uid", "name", "namespace"])
def test_an_object_that_cannot_be_told_from_others_is_none(lost):
    found = thing(kind("Job"))
    del found["metadata"][lost]
    assert read(kind("Job"), found) is None


def test_the_table_of_kinds_has_each_resource_once():
    names = [of.resource for of in KINDS]
    assert len(set(names)) == len(names)


def pods_of(priority):
    return {"template": {"spec": {"priorityClassName": priority}}}


@pytest.mark.parametrize(
    ("name", "spec", "labels", "expected"),
    [
        ("Job", {}, {}, kinds.NO_CLASS),
        ("Job", pods_of("high"), {}, "high"),
        ("Job", pods_of("high"), {"kueue.x-k8s.io/priority-class": "gold"}, "gold"),
        ("Job", pods_of("high"), {kinds.CLASS_LABELS[0]: "nightly"}, "nightly"),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": pods_of("high")}}, {}, "high"),
        ("JobSet", {"replicatedJobs": [{"template": {"spec": pods_of("p")}}]}, {}, "p"),
        ("CronJob", {"jobTemplate": {"spec": pods_of("night")}}, {}, "night"),
        ("Job", pods_of('"} 1\n'), {}, kinds.NO_CLASS),
    ],
)
def test_the_class_of_a_job_is_its_label_or_its_priority(name, spec, labels, expected):
    assert read(kind(name, None), thing(kind(name), spec, labels=labels)).job_class == expected
