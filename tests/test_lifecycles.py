"""Each kind of job through each lifecycle: counted once, over a change of leader and an outage.

Objects are as the API types have them; the queue is Kueue's.
"""

import pytest

from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.workloads import kinds, nodes, pods
from watched_clusters import Api, Cluster, Watch, noticed
from workload_objects import condition, kind, pod, stamp, thing

KUBEFLOW = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
REPLICAS = dict(
    zip(KUBEFLOW, ("pytorch", "tf", "xgb", "paddle", "jax", "mpi"), strict=True),
)
GROUPS = {"Job": "batch", "VolcanoJob": "batch.volcano.sh"}


def c(*conditions):
    return {"conditions": list(conditions)}


def volcano(phase):
    return {"state": {"phase": phase, "lastTransitionTime": stamp(90)}}


def ray(deployment, job):
    return {"jobDeploymentStatus": deployment, "jobStatus": job, "endTime": stamp(90)}


def of_operator():
    running = condition("Running", 30)
    over = condition("Running", 30, status="False")
    return {
        "going on": c(condition("Created", 1), running),
        "restarting": c(condition("Created", 1), over, condition("Restarting", 60)),
        "suspended": c(condition("Created", 1), over, condition("Suspended", 60)),
        "success": c(over, condition("Succeeded", 90)),
        "failure": c(over, condition("Failed", 90, message="specified deadline")),
    }


STATUSES = {
    **{name: of_operator() for name in KUBEFLOW},
    "Job": {
        "going on": {"active": 2},
        "restarting": {"active": 2, "failed": 1},
        "suspended": c(condition("Suspended", 60)),
        "success": c(condition("Complete", 90)),
        "failure": c(condition("Failed", 90, reason="DeadlineExceeded")),
    },
    "JobSet": {
        "going on": {"replicatedJobsStatus": [{"name": "node", "active": 2}]},
        "restarting": {"restarts": 1, **c(condition("RestartingJobSet", 60))},
        "suspended": c(condition("Suspended", 60)),
        "success": c(condition("Completed", 90)),
        "failure": c(condition("Failed", 90, reason="DeadlineExceeded")),
    },
    "TrainJob": {
        "going on": {"jobsStatus": [{"name": "node", "active": 2}]},
        "restarting": {"jobsStatus": [{"name": "node", "active": 0}]},
        "suspended": c(condition("Suspended", 60)),
        "success": c(condition("Complete", 90)),
        "failure": c(condition("Failed", 90, reason="DeadlineExceeded")),
    },
    "VolcanoJob": {
        "going on": volcano("Running"),
        "restarting": volcano("Restarting"),
        "suspended": volcano("Aborted"),
        "success": volcano("Completed"),
        "failure": {"state": {**volcano("Failed")["state"], "reason": "DeadlineExceeded"}},
    },
    "RayJob": {
        "going on": ray("Running", "RUNNING"),
        "restarting": ray("Retrying", "FAILED"),
        "suspended": ray("Suspended", ""),
        "success": ray("Complete", "SUCCEEDED"),
        "failure": {**ray("Failed", "FAILED"), "reason": "DeadlineExceeded"},
    },
}
SUCCEEDED, FAILED = {("succeeded", ""): 1}, {("failed", "deadline"): 1}
LABELS = {"training.kubeflow.org/job-name": "train"}

# What befalls a job, step by step: the status of its object, and what its pods, node or queue say.
LIVES = {
    "success": (("going on", "success"), SUCCEEDED),
    "failure": (("going on", "failure"), FAILED),
    "restart": (("going on", "restarting", "going on", "success"), SUCCEEDED),
    "eviction": (("going on", "evicted", "restarting", "success"), SUCCEEDED),
    "preemption": (("going on", "preempted", "going on", "success"), SUCCEEDED),
    "suspend": (("going on", "suspended", "going on", "success"), SUCCEEDED),
    "elastic shrink": (("going on", "shrunk", "success"), SUCCEEDED),
    "requeue": (("going on", "taken away", "requeued", "going on", "success"), SUCCEEDED),
    "spot notice": (("going on", "spot", "going on", "success"), SUCCEEDED),
}
PODS = {
    "evicted": {"phase": "Failed", "more": {"reason": "Evicted"}},
    "preempted": {"conditions": [condition("DisruptionTarget", 50, "PreemptionByScheduler")]},
}
QUEUE = {
    "taken away": (condition("Evicted", 40, "Preempted"), condition("Preempted", 40)),
    "requeued": (condition("Requeued", 50, "Preempted"),),
}
SPOT = {"key": "aws-node-termination-handler/spot-itn", "timeAdded": stamp(50)}


def of_kind(name):
    return kind(name.removeprefix("Volcano"), GROUPS.get(name))


def spec_of(name, count):
    if name in REPLICAS:
        return {
            f"{REPLICAS[name]}ReplicaSpecs": {"Worker": {"replicas": count}},
            "elasticPolicy": {"minReplicas": 1, "maxReplicas": 2},
        }
    return {"parallelism": count, "minAvailable": 1}


def arranged(cluster, name, step):
    """Put the objects of a job as they are at a step of its life."""
    of, count = of_kind(name), 1 if step == "shrunk" else 2
    status = STATUSES[name].get(step) or STATUSES[name]["going on"]
    if step in QUEUE:
        status = STATUSES[name]["suspended"]
    job = kinds.read(of, thing(of, spec_of(name, count), status))
    more = {"schedulingStats": {"evictions": [{"count": 1}]}} if step in QUEUE else {}
    said = QUEUE.get(step, (condition("QuotaReserved", 10), condition("Admitted", 12)))
    queue = thing(
        kind("Workload"), {}, {**c(*said), **more}, "w", owner=(job.kind, "train", job.uid)
    )
    cluster.objects = {job.uid: job, "w": kinds.read(kind("Workload"), queue)}
    there = [pod(f"p{number}", LABELS, **PODS.get(step, {})) for number in range(count)]
    cluster.pods = [] if step in QUEUE else [pods.read(one) for one in there]
    taints = [SPOT] if step == "spot" else []
    body = {"metadata": {"name": "gpu-1", "uid": "n"}, "spec": {"taints": taints}, "status": {}}
    cluster.machines = [nodes.read(body)[1]]


@pytest.mark.parametrize("name", STATUSES)
@pytest.mark.parametrize("life", LIVES)
def test_a_life_is_counted_once_over_a_change_of_leader_and_an_outage(name, life):
    steps, expected = LIVES[life]
    cluster, api = Cluster(), Api()
    watches = [Watch(cluster, ConfigMapStore(api, "state", "rankscope")) for _ in range(2)]
    leading, at = watches[0], 100
    leading.look(at)  # the cluster is empty: all that comes counts
    for number, step in enumerate(steps):
        arranged(cluster, name, step)
        api.down = number % 2 == 1
        leading.look(at + 30)
        api.down = False
        leading.look(at + 60)
        leading.stand_by()
        leading = watches[(number + 1) % 2]
        leading.look(at := at + 90)
    assert leading.totals() == expected
    assert noticed(leading) == ({"spot_interruption": 1} if life == "spot notice" else {})


def test_each_life_says_what_befell_the_job_while_it_lasts():
    cluster = Cluster()
    watch = Watch(cluster)

    def said(step, metric):
        arranged(cluster, "PyTorchJob", step)
        watch.look(130)
        found = [one for one in watch.series() if one.metric.name == f"rankscope_job_{metric}"]
        return [(*one.labels[1:], one.value) for one in found]

    assert said("going on", "state") == [("running", 1)]
    assert said("restarting", "state") == [("restarting", 1)]
    assert said("suspended", "state") == [("suspended", 1)]
    assert said("taken away", "state") == [("queued", 1)]
    assert said("requeued", "interruptions") == [(1,)]
    assert ("worker", "wanted", 1) in said("shrunk", "replicas")
    assert said("preempted", "held_gpus") == [(16,)]
    assert said("evicted", "held_gpus") == [(0,)]


def test_the_runs_of_a_cron_job_count_and_what_serves_is_cancelled():
    cluster, api = Cluster(), Api()
    watch = Watch(cluster, ConfigMapStore(api, "state", "rankscope"))
    cron, serving = kind("CronJob"), kind("LeaderWorkerSet")
    series = kinds.read(cron, thing(cron, {}, {}, "nightly"))
    served = kinds.read(serving, thing(serving, {}, {"readyReplicas": 1}, "serve"))
    run = kind("Job", "batch")
    owner = ("CronJob", "nightly", series.uid)

    def runs(*statuses):
        found = [
            kinds.read(run, thing(run, {}, status, f"nightly-{number}", owner=owner))
            for number, status in enumerate(statuses)
        ]
        return {one.uid: one for one in (series, served, *found)}

    going_on, success, failure = (
        STATUSES["Job"][step] for step in ("going on", "success", "failure")
    )
    for statuses in ((), (going_on,), (success, going_on), (success, failure)):
        cluster.objects = runs(*statuses)
        watch.look(130)
        watch.stand_by()
        watch.look(140)
    cluster.delete("serve")
    watch.look(150)
    assert watch.totals() == {**SUCCEEDED, **FAILED, ("cancelled", ""): 1}


@pytest.mark.parametrize("phase", ["Running", "Finished", "Failed"])
def test_a_pod_group_says_something_of_a_job_and_is_none(phase):
    cluster = Cluster()
    watch = Watch(cluster)
    watch.look()
    group = kind("PodGroup")
    one = kinds.read(group, thing(group, {"minMember": 2}, {"phase": phase}))
    cluster.objects = {one.uid: one}
    watch.look(130)
    assert watch.totals() == {}
    assert watch.series() == []
