"""Pods as operators and launchers template them."""

import json

from pod_json import pod

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
