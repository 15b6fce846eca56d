import dataclasses
import json

import pytest

from pod_json import field_ref, pod
from rankscope_agent.sources.pods.launchers import membership
from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.records import parse_pod

KF = "training.kubeflow.org/"
JS = "jobset.sigs.k8s.io/"
LWS = "leaderworkerset.sigs.k8s.io/"
INDEX = "batch.kubernetes.io/job-completion-index"


def kubeflow(kind, role, index, env=None, **more):
    labels = {
        KF + "job-name": "train",
        KF + "operator-name": f"{kind.lower()}-controller",
        KF + "replica-type": role,
        KF + "replica-index": str(index),
    }
    name = f"train-{role}-{index}"
    owner = ("kubeflow.org/v1", kind, "train")
    return pod(name, labels=labels, owner=owner, env=env, **more)


def pytorch(role, index, rank, nproc, nnodes="4", **more):
    env = {"PET_NNODES": nnodes, "PET_NPROC_PER_NODE": nproc}
    if rank is not None:
        each = int(nproc) if nproc.isdigit() else 1
        env |= {
            "MASTER_ADDR": "train-master-0",
            "RANK": str(rank),
            "PET_NODE_RANK": str(rank),
            "WORLD_SIZE": str(4 * each),
        }
    return kubeflow("PyTorchJob", role, index, env, **more)


def tf_config(kind, index):
    cluster = {"chief": ["c:1"], "ps": ["p:1", "p:2"], "worker": ["w:1", "w:2"]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


def train_job(env, index=2, step="trainer", replicated="node", attempt="1"):
    labels = {
        JS + "jobset-name": "llm",
        JS + "replicatedjob-name": replicated,
        JS + "restart-attempt": attempt,
        "trainer.kubeflow.org/trainjob-ancestor-step": step,
        "batch.kubernetes.io/job-name": f"llm-{replicated}-0",
        INDEX: str(index),
    }
    return pod(
        labels=labels,
        annotations={INDEX: str(index)},
        env=env,
        owner=("batch/v1", "Job", f"llm-{replicated}-0"),
    )


def job_set(job_index, jobs, index, env=None):
    labels = {
        JS + "jobset-name": "sim",
        JS + "replicatedjob-name": "workers",
        JS + "replicatedjob-replicas": str(jobs),
        JS + "global-replicas": str(jobs),
        JS + "job-index": str(job_index),
        JS + "restart-attempt": "3",
        INDEX: str(index),
    }
    return pod(labels=labels, owner=("batch/v1", "Job", f"sim-workers-{job_index}"), env=env)


def ray(node_type, limits=None, **labels):
    return pod(
        labels={"ray.io/cluster": "tune-raycluster-x1", "ray.io/node-type": node_type, **labels},
        owner=("ray.io/v1", "RayCluster", "tune-raycluster-x1"),
        limits=limits,
    )


MPI = {KF + "job-name": "hpl", KF + "operator-name": "mpi-operator"}
SLOTS = {"OMPI_MCA_orte_set_default_slots": "8"}
ONE = {"PET_NPROC_PER_NODE": "1", "PET_NNODES": "4"}

CASES = {
    "PyTorchJob master": (
        pytorch("master", 0, 0, "8"),
        {
            "job": "train",
            "kind": "PyTorchJob",
            "role": "master",
            "index": 0,
            "node_rank": 0,
            "world_size": 32,
            "local_world_size": 8,
            "source": "environment",
        },
    ),
    "PyTorchJob worker 0 beside a master is pod 1": (
        pytorch("worker", 0, 1, "8"),
        {"role": "worker", "index": 0, "node_rank": 1, "rank": None, "world_size": 32},
    ),
    "PyTorchJob worker whose rank cannot be resolved takes index + 1": (
        kubeflow(
            "PyTorchJob",
            "worker",
            2,
            {
                "MASTER_ADDR": "train-master-0",
                "RANK": {"configMapKeyRef": {"name": "c", "key": "k"}},
            },
        ),
        {"node_rank": 3, "rank": None, "source": "label"},
    ),
    "PyTorchJob with one process per pod has process ranks": (
        pytorch("worker", 1, 2, "1"),
        {"node_rank": 2, "rank": 2, "world_size": 4, "local_world_size": 1},
    ),
    "PyTorchJob with nproc auto has neither process rank nor world size": (
        pytorch("worker", 1, 2, "auto"),
        {"node_rank": 2, "rank": None, "world_size": None, "local_world_size": None},
    ),
    "PyTorchJob elastic without master has no numbers at all": (
        pytorch("worker", 1, None, "8", nnodes="2:4"),
        {"elastic": True, "index": 1, "node_rank": None, "rank": None, "source": "none"},
    ),
    "TFJob worker counts after the chief": (
        kubeflow("TFJob", "worker", 1, tf_config("worker", 1)),
        {"kind": "TFJob", "node_rank": 2, "rank": 2, "world_size": 3},
    ),
    "TFJob chief is rank 0": (
        kubeflow("TFJob", "chief", 0, tf_config("chief", 0)),
        {"rank": 0, "world_size": 3},
    ),
    "TFJob parameter server is no rank": (
        kubeflow("TFJob", "ps", 1, tf_config("ps", 1)),
        {"trains": False, "rank": None, "node_rank": None},
    ),
    "TFJob evaluator is no rank": (
        kubeflow("TFJob", "evaluator", 0, tf_config("evaluator", 0)),
        {"trains": False, "rank": None},
    ),
    "XGBoostJob": (
        kubeflow("XGBoostJob", "worker", 0, {"RANK": "1", "WORLD_SIZE": "3"}),
        {"kind": "XGBoostJob", "node_rank": 1, "rank": 1, "world_size": 3},
    ),
    "PaddleJob": (
        kubeflow("PaddleJob", "worker", 1, {"PADDLE_TRAINER_NUM": "4", "PADDLE_NNODES": "2"}),
        {"kind": "PaddleJob", "index": 1, "rank": None, "world_size": 4},
    ),
    "JAXJob": (
        kubeflow("JAXJob", "worker", 3, {"PROCESS_ID": "3", "NUM_PROCESSES": "4"}),
        {"kind": "JAXJob", "rank": 3, "world_size": 4, "local_world_size": 1},
    ),
    "MPIJob v1 launcher, which has an index and trains nothing": (
        kubeflow("MPIJob", "launcher", 0, SLOTS),
        {"kind": "MPIJob", "role": "launcher", "trains": False, "node_rank": None},
    ),
    "MPIJob v1 worker": (
        kubeflow("MPIJob", "worker", 1, SLOTS),
        {"role": "worker", "trains": True, "node_rank": 1, "rank": None, "local_world_size": 8},
    ),
    "MPIJob v2 launcher, owned by a Job": (
        pod(labels={**MPI, KF + "job-role": "launcher"}, owner=("batch/v1", "Job", "hpl-launcher")),
        {"job": "hpl", "kind": "MPIJob", "role": "launcher", "trains": False},
    ),
    "MPIJob v2 launcher that runs as a worker": (
        pod(
            labels={**MPI, KF + "job-role": "launcher", KF + "replica-index": "0"},
            owner=("batch/v1", "Job", "hpl-launcher"),
        ),
        {"trains": True, "node_rank": 0, "rank": None},
    ),
    "MPIJob v2 worker": (
        pod(
            labels={**MPI, KF + "job-role": "worker", KF + "replica-index": "2"},
            env=SLOTS,
            owner=("kubeflow.org/v2beta1", "MPIJob", "hpl"),
        ),
        {"job": "hpl", "role": "worker", "node_rank": 2, "rank": None, "local_world_size": 8},
    ),
    "TrainJob node, its rank by reference to an annotation": (
        train_job(
            {
                "PET_NNODES": "4",
                "PET_NPROC_PER_NODE": "8",
                "PET_NODE_RANK": field_ref(f"metadata.annotations['{INDEX}']"),
            }
        ),
        {
            "job": "llm",
            "kind": "TrainJob",
            "role": "trainer",
            "node_rank": 2,
            "rank": None,
            "world_size": 32,
            "attempt": 1,
            "source": "environment",
        },
    ),
    "TrainJob on JAX": (
        train_job({"JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "2"}),
        {"rank": 2, "world_size": 4},
    ),
    "TrainJob on XGBoost": (
        train_job({"DMLC_NUM_WORKER": "4", "DMLC_TASK_ID": "2"}),
        {"rank": 2, "world_size": 4},
    ),
    "TrainJob dataset initializer is no rank": (
        train_job({}, step="dataset-initializer", replicated="dataset-initializer", index=0),
        {"kind": "TrainJob", "trains": False},
    ),
    "JobSet of one Job": (
        job_set(0, 1, 3),
        {
            "job": "sim",
            "kind": "JobSet",
            "node_rank": 3,
            "rank": None,
            "attempt": 3,
            "source": "label",
        },
    ),
    "JobSet of several Jobs: the completion index is no rank": (
        job_set(1, 2, 3),
        {"index": 3, "node_rank": None, "rank": None},
    ),
    "JobSet of several Jobs with torchrun's variable": (
        job_set(1, 2, 3, {"PET_NODE_RANK": "7"}),
        {"node_rank": 7, "rank": None},
    ),
    "LeaderWorkerSet leader": (
        pod(
            "lws-0",
            labels={LWS + "name": "lws", LWS + "group-index": "0", LWS + "worker-index": "0"},
            annotations={LWS + "size": "4"},
            owner=("apps/v1", "StatefulSet", "lws"),
        ),
        {"job": "lws", "kind": "LeaderWorkerSet", "role": "leader", "node_rank": 0},
    ),
    "LeaderWorkerSet worker of the second group, owned by a StatefulSet": (
        pod(
            "lws-1-2",
            labels={LWS + "name": "lws", LWS + "group-index": "1", LWS + "worker-index": "2"},
            env={"LWS_GROUP_SIZE": "4"},
            owner=("apps/v1", "StatefulSet", "lws-1"),
        ),
        {"job": "lws", "role": "worker", "node_rank": 6, "rank": None},
    ),
    "Volcano with the pytorch plugin: RANK and WORLD_SIZE count pods": (
        pod(
            labels={
                "volcano.sh/job-name": "vj",
                "volcano.sh/task-spec": "worker",
                "volcano.sh/task-index": "1",
                "volcano.sh/queue-name": "prod",
            },
            annotations={
                "volcano.sh/job-retry-count": "2",
                "scheduling.k8s.io/group-name": "vj-pg",
            },
            env={"RANK": "2", "WORLD_SIZE": "4", "VC_TASK_INDEX": "1"},
            owner=("batch.volcano.sh/v1alpha1", "Job", "vj"),
        ),
        {
            "job": "vj",
            "kind": "VolcanoJob",
            "role": "worker",
            "index": 1,
            "node_rank": 2,
            "rank": None,
            "world_size": None,
            "attempt": 2,
            "queue": "prod",
            "gang": "vj-pg",
        },
    ),
    "RayJob worker": (
        ray(
            "worker",
            **{"ray.io/originated-from-cr-name": "tune", "ray.io/originated-from-crd": "RayJob"},
        ),
        {"job": "tune", "kind": "RayJob", "role": "worker", "trains": True, "rank": None},
    ),
    "RayCluster head without devices": (
        ray("head"),
        {"job": "tune-raycluster-x1", "kind": "RayCluster", "role": "head", "trains": False},
    ),
    "RayCluster head with a GPU": (ray("head", {"nvidia.com/gpu": "1"}), {"trains": True}),
    "DLRover worker keeps its rank over relaunches": (
        pod(
            labels={
                "elasticjob.dlrover/name": "dj",
                "elasticjob.dlrover/replica-type": "worker",
                "elasticjob.dlrover/replica-index": "5",
                "elasticjob.dlrover/rank-index": "1",
                "elasticjob.dlrover/relaunch-count": "2",
            },
            owner=("elastic.iml.github.io/v1alpha1", "ElasticJob", "dj"),
        ),
        {"job": "dj", "kind": "ElasticJob", "index": 5, "node_rank": 1, "attempt": 2},
    ),
    "DLRover master is no rank": (
        pod(
            labels={
                "elasticjob.dlrover/name": "dj",
                "elasticjob.dlrover/replica-type": "dlrover-master",
            }
        ),
        {"trains": False},
    ),
    "Indexed Job, one process": (
        pod(
            labels={"batch.kubernetes.io/job-name": "fit", INDEX: "3"},
            annotations={INDEX: "3"},
            env={**ONE, "JOB_COMPLETION_INDEX": field_ref(f"metadata.labels['{INDEX}']")},
            owner=("batch/v1", "Job", "fit"),
        ),
        {"job": "fit", "kind": "Job", "index": 3, "node_rank": 3, "rank": 3, "world_size": 4},
    ),
    "Indexed Job of unknown processes: its index is a pod's": (
        pod(
            labels={"batch.kubernetes.io/job-name": "fit", INDEX: "3"},
            owner=("batch/v1", "Job", "fit"),
        ),
        {"node_rank": 3, "rank": None},
    ),
    "plain Job": (
        pod(labels={"job-name": "fit"}, owner=("batch/v1", "Job", "fit")),
        {"job": "fit", "kind": "Job", "index": None, "node_rank": None, "rank": None},
    ),
    "CronJob's Job": (
        pod(owner=("batch/v1", "Job", "nightly-29931840")),
        {"job": "nightly-29931840", "kind": "Job", "parent": "CronJob/nightly"},
    ),
    "Job of slurm-bridge": (
        pod(
            labels={"job-name": "fit", "scheduler.slinky.slurm.net/slurm-jobid": "4711"},
            owner=("batch/v1", "Job", "fit"),
        ),
        {"job": "fit", "parent": "SlurmJob/4711"},
    ),
    "StatefulSet": (
        pod(
            "ps-11",
            labels={"apps.kubernetes.io/pod-index": "11"},
            owner=("apps/v1", "StatefulSet", "ps"),
        ),
        {"job": "ps", "kind": "StatefulSet", "node_rank": 11, "rank": None},
    ),
    "StatefulSet before pods had an index label": (
        pod("ps-11", owner=("apps/v1", "StatefulSet", "ps")),
        {"index": 11, "node_rank": 11},
    ),
    "Argo Workflow": (
        pod(
            labels={"workflows.argoproj.io/workflow": "pipe-x"},
            owner=("argoproj.io/v1alpha1", "Workflow", "pipe-x"),
        ),
        {"job": "pipe-x", "kind": "Workflow", "node_rank": None},
    ),
    "Kueue group of plain pods": (
        pod(
            labels={
                "kueue.x-k8s.io/pod-group-name": "grp",
                "kueue.x-k8s.io/queue-name": "lq",
                "kueue.x-k8s.io/pod-group-pod-index": "1",
            }
        ),
        {"job": "grp", "kind": "PodGroup", "index": 1, "queue": "lq", "gang": "grp", "rank": None},
    ),
    "coscheduling adds a gang": (
        pod(
            labels={"scheduling.x-k8s.io/pod-group": "g7", "job-name": "fit"},
            owner=("batch/v1", "Job", "fit"),
        ),
        {"job": "fit", "gang": "g7"},
    ),
    "Deployment": (
        pod(labels={"pod-template-hash": "6b9f"}, owner=("apps/v1", "ReplicaSet", "serve-6b9f")),
        {"job": "serve", "kind": "Deployment"},
    ),
    "bare pod": (pod("notebook"), {"job": "notebook", "kind": "Pod", "rank": None}),
    "unknown controller": (
        pod(owner=("acme.example/v2", "SuperJob", "big")),
        {"job": "big", "kind": "SuperJob", "rank": None, "node_rank": None},
    ),
    "labels of another launcher than the owner's are no match by name alone": (
        pod(owner=("acme.example/v1", "Job", "odd")),
        {"job": "odd", "kind": "Job"},
    ),
}


@pytest.mark.parametrize(("data", "expected"), CASES.values(), ids=list(CASES))
def test_a_pod_is_placed_in_its_job(data, expected):
    found = membership(parse_pod(data))
    assert found is not None
    told = dataclasses.asdict(found)
    assert {key: told[key] for key in expected} == expected


@pytest.mark.parametrize(
    "data",
    [
        pod(owner=("apps/v1", "DaemonSet", "agent")),
        pod(owner=("v1", "Node", "n1")),
        pod(
            labels={"nodeset.slinky.slurm.net/pod-index": "1"},
            owner=("slinky.slurm.net/v1beta1", "NodeSet", "gpus"),
        ),
    ],
    ids=["DaemonSet", "static pod", "Slinky node"],
)
def test_pods_of_the_node_are_no_part_of_a_job(data):
    assert membership(parse_pod(data)) is None


def test_labels_that_a_template_lost_are_made_up_for_by_the_owner():
    found = membership(parse_pod(pod(owner=("kubeflow.org/v1", "PyTorchJob", "train"))))
    assert found == Membership("train", "PyTorchJob")


@pytest.mark.parametrize("text", ["-1", "1e3", "٣", "", "99999999", "1.0", "0x1"])
def test_what_is_no_number_gives_no_rank(text):
    found = membership(parse_pod(kubeflow("JAXJob", "worker", 0, {"PROCESS_ID": text})))
    assert found is not None
    assert found.rank is None


def test_containers_that_disagree_about_the_rank_give_none():
    data = kubeflow("JAXJob", "worker", 0, {"PROCESS_ID": "0", "NUM_PROCESSES": "2"})
    second = json.loads(json.dumps(data["spec"]["containers"][0]))
    second["env"][0]["value"] = "1"
    data["spec"]["containers"].append(second)
    found = membership(parse_pod(data))
    assert found is not None
    assert (found.rank, found.world_size) == (None, 2)


@pytest.mark.parametrize(
    "config", ["[]", "{", '{"cluster": 3, "task": []}', '{"cluster": {"worker": 1}, "task": {}}']
)
def test_a_broken_tf_config_gives_no_rank(config):
    found = membership(parse_pod(kubeflow("TFJob", "worker", 0, {"TF_CONFIG": config})))
    assert found is not None
    assert found.rank is None
