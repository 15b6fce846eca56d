"""A job's pods as they change, and what the page of their node's agent says of the job."""

import pytest

from collected_pods import Kubelet, Node
from pod_json import pod
from pod_states import BEGIN
from rankscope_agent.contract.metrics import job_status as metrics
from rankscope_agent.sources.pods.records import parse_pod

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
