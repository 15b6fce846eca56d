"""Cases of preflight's checks of what a job keeps when it fails or is ended."""

from __future__ import annotations

from typing import Any

from preflight_jobs import CLAIM, GONE, JOB, Case, changed, env


def nodes(*options: str, **variables: object) -> dict[str, Any]:
    """The job of four pods, with these options and variables for torchrun."""
    return changed(
        {"main command": ["torchrun", *options, "train.py"], "main +env": env(**variables)}
    )


def torchrun(*options: str, **variables: object) -> dict[str, Any]:
    """The template of its pods."""
    return nodes(*options, **variables)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]


def with_master(*options: str, **spec: object) -> dict[str, Any]:
    """The same with a Master among the pods, and these members of its spec."""
    job = nodes(*options)
    roles = {"Master": {"template": torchrun(*options)}}
    roles["Worker"] = {**job["spec"]["pytorchReplicaSpecs"]["Worker"], "replicas": 3}
    return {**job, "spec": {**job["spec"], **spec, "pytorchReplicaSpecs": roles}}


def job_set(*options: str, **variables: object) -> dict[str, Any]:
    """Two Jobs of three pods."""
    job = {
        "spec": {"parallelism": 3, "completions": 3, "template": torchrun(*options, **variables)}
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "llm", "namespace": "ml"},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": job}]},
    }


def groups_of_four(*options: str) -> dict[str, Any]:
    """Two trainings of four pods each."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "llm", "namespace": "ml"},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 4, "workerTemplate": torchrun(*options)},
        },
    }


def pod(*options: str) -> dict[str, Any]:
    """One of the job's pods."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **changed({"metadata name": "llm-worker-0"}, torchrun(*options)),
    }


NEVER_RESTARTED = changed({"worker restartPolicy": "Never"})


def mpi(version: str, policy: str = "", **run_policy: int) -> dict[str, Any]:
    """An MPIJob of mpi-operator (v2beta1) or training-operator (v1)."""
    launcher = {"template": {}, **({"restartPolicy": policy} if policy else {})}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": "llm", "namespace": "ml"},
        "spec": {
            "runPolicy": run_policy,
            "mpiReplicaSpecs": {"Launcher": launcher, "Worker": {"template": {}}},
        },
    }


READ_ONLY = changed(
    {"main volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt/", "readOnly": True}]}
)

ENDURANCE_CASES: list[Case] = [
    ("checkpoint-volume", "pass", "ReadWriteMany", [JOB, CLAIM]),
    (
        *("checkpoint-volume", "pass", "s3://b/run"),
        [changed({"main command": ["torchrun", "--checkpoint-dir", "s3://b/run"]})],
    ),
    (
        *("checkpoint-volume", "warn", "ReadWriteOnce"),
        [
            changed({"worker replicas": 1}),
            changed({"spec accessModes": ["ReadWriteOnce"]}, CLAIM),
        ],
    ),
    (
        *("checkpoint-volume", "fail", "4 pods mount it"),
        [JOB, changed({"spec accessModes": ["ReadWriteOnce"]}, CLAIM)],
    ),
    (
        *("checkpoint-volume", "fail", "disks of the node"),
        [
            JOB,
            CLAIM,
            {
                "kind": "StorageClass",
                "apiVersion": "storage.k8s.io/v1",
                "metadata": {"name": "cephfs"},
                "provisioner": "rancher.io/local-path",
            },
        ],
    ),
    (
        *("checkpoint-volume", "fail", "emptyDir"),
        [changed({"pod volumes": [{"name": "ckpt", "emptyDir": {}}]})],
    ),
    (
        *("checkpoint-volume", "fail", "nothing is mounted at /out"),
        [changed({"main +env": env(OUTPUT_DIR="/out"), "main command": ["train"]})],
    ),
    ("checkpoint-volume", "undecided", "Claim", [JOB]),
    (
        "checkpoint-volume",
        "fail",
        "/ckpt, the volume at /ckpt/run, is mounted r",
        [READ_ONLY, CLAIM],
    ),
    (
        *("checkpoint-volume", "undecided", "where checkpoints go"),
        [changed({"main command": ["train"]}, READ_ONLY), CLAIM],
    ),
    (
        *("checkpoint-volume", "undecided", "where checkpoints go"),
        [
            changed(
                {
                    "main command": ["train"],
                    "pod volumes": [{"name": "ckpt", "nfs": {"path": "/", "readOnly": True}}],
                }
            )
        ],
    ),
    (
        *("checkpoint-volume", "undecided", "where checkpoints go"),
        [changed({"main command": ["train"], "pod volumes": [{"name": "ckpt", "emptyDir": {}}]})],
    ),
    ("restart-budget", "pass", "5", [JOB]),
    ("restart-budget", "warn", "unlimited", [changed({"spec runPolicy": GONE})]),
    ("restart-budget", "warn", "backoffLimit: 1", [changed({"spec runPolicy backoffLimit": 1})]),
    ("restart-budget", "fail", "backoffLimit: 0", [changed({"spec runPolicy backoffLimit": 0})]),
    ("restart-budget", "fail", "Worker.restartPolicy: Never", [NEVER_RESTARTED]),
    (
        *("restart-budget", "pass", "elasticPolicy.maxRestarts: 3"),
        [changed({"spec elasticPolicy": {"maxRestarts": 3}}, NEVER_RESTARTED)],
    ),
    ("restart-budget", "pass", "backoffLimit: 6 by default", [mpi("v2beta1")]),
    ("restart-budget", "fail", "Launcher.restartPolicy: Never by default", [mpi("v1")]),
    ("restart-budget", "pass", "backoffLimit: 5", [mpi("v1", "OnFailure", backoffLimit=5)]),
    ("restart-budget", "undecided", "is not a", [changed({"spec runPolicy backoffLimit": "x"})]),
    (
        *("elastic-bounds", "pass", "from 2 to 8"),
        [changed({"spec elasticPolicy": {"minReplicas": 2, "maxReplicas": 8}})],
    ),
    (
        *("elastic-bounds", "warn", "every pod"),
        [changed({"main command": ["torchrun", "--nnodes=4:4", "x.py"]})],
    ),
    (
        *("elastic-bounds", "fail", "never starts"),
        [changed({"main command": ["torchrun", "--nnodes", "8:16", "x.py"]})],
    ),
    (
        *("elastic-bounds", "fail", "from 8 to 2"),
        [changed({"spec elasticPolicy": {"minReplicas": 8, "maxReplicas": 2}})],
    ),
    (
        *("elastic-bounds", "undecided", "how many"),
        [
            changed(
                {"spec elasticPolicy": {"minReplicas": 2, "maxReplicas": 8}, "worker replicas": "n"}
            )
        ],
    ),
    ("elastic-bounds", "pass", "4, with 4 pods", [nodes("--nnodes=4")]),
    ("elastic-bounds", "pass", "4, with 4 pods", [nodes("--nnodes=$N", N=4)]),
    ("elastic-bounds", "fail", "8, with 4 pods: they never start", [nodes("--nnodes", "8")]),
    ("elastic-bounds", "fail", "1, with 4 pods: they do not train", [nodes("--nnodes=1")]),
    ("elastic-bounds", "fail", "--standalone, with 4 pods", [nodes("--standalone")]),
    ("elastic-bounds", "warn", "PET_NNODES is 8", [nodes(PET_NNODES=8)]),
    ("elastic-bounds", "fail", "PET_NNODES is 8", [job_set(PET_NNODES=8)]),
    ("elastic-bounds", "undecided", "--nnodes is $WORLD_SIZE", [nodes("--nnodes=$WORLD_SIZE")]),
    ("elastic-bounds", "pass", "4, with 4 pods", [with_master("--nnodes=$WORLD_SIZE")]),
    (
        *("elastic-bounds", "pass", "4, with 4 pods"),
        [with_master("--nnodes=${WORLD_SIZE}", nprocPerNode="auto")],
    ),
    (
        *("elastic-bounds", "fail", "32, with 4 pods: they never start"),
        [with_master("--nnodes=$WORLD_SIZE", nprocPerNode="8")],
    ),
    ("elastic-bounds", "undecided", "--nnodes is $RANK", [with_master("--nnodes=$RANK")]),
    ("elastic-bounds", "undecided", "1 or 4", [nodes("--nnodes=1", "--nnodes=4")]),
    ("elastic-bounds", "fail", "8, with 6 pods", [job_set("--nnodes=8")]),
    ("elastic-bounds", "pass", "4, with 4 pods", [groups_of_four("--nnodes=4")]),
    ("elastic-bounds", "undecided", "may not be among those", [pod("--nnodes=4")]),
    ("termination-grace", "pass", "600", [JOB]),
    ("termination-grace", "warn", "150", [changed({"pod terminationGracePeriodSeconds": 150})]),
    ("termination-grace", "fail", "30", [changed({"pod terminationGracePeriodSeconds": GONE})]),
    (
        *("termination-grace", "undecided", "not a number"),
        [changed({"pod terminationGracePeriodSeconds": "x"})],
    ),
]
