"""Pods as launchers make them, with their places in their jobs."""

from pod_json import field_ref, pod
from pod_templates import (
    INDEX,
    KF,
    LWS,
    MPI,
    ONE,
    SLOTS,
    job_set,
    kubeflow,
    pytorch,
    ray,
    tf_config,
    train_job,
)

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
