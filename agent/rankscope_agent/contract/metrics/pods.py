"""Series about the pods of the node: their jobs and the devices they hold."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

POD = ("pod_namespace", "pod_name", "container_name")

PODS = Metric("rankscope_pods", "gauge", "Pods on this node, according to the API server.")
PODS_DROPPED = Metric(
    "rankscope_pods_dropped",
    "gauge",
    "Pods on this node that were left out because there are too many.",
)
POD_SOURCE_UP = Metric(
    "rankscope_pod_source_up",
    "gauge",
    "1 if this source of pod information answers: api, kubelet or processes.",
    ("source",),
)
POD_SOURCE_UPDATED = Metric(
    "rankscope_pod_source_last_update_timestamp_seconds",
    "gauge",
    "Unix time of the source's last answer; that answer is kept while the source does not respond.",
    ("source",),
)
POD_SOURCE_ERRORS = Metric(
    "rankscope_pod_source_errors_total", "counter", "Failed requests to the source.", ("source",)
)
POD_API_REQUESTS = Metric(
    "rankscope_pod_api_requests_total",
    "counter",
    "Requests to the API server, by kind: list or watch.",
    ("request",),
)
JOB_NAMES_REJECTED = Metric(
    "rankscope_job_names_rejected",
    "gauge",
    "Pods and processes on this node whose job name was rejected or cannot be read, by reason;"
    " absent if there are none.",
    ("reason",),
)
GPU_ALLOCATION_INFO = Metric(
    "rankscope_gpu_allocation_info",
    "gauge",
    "Always 1; the container that holds a GPU. The uuid of a shared GPU ends in ::replica.",
    ("uuid", "gpu", "resource", "node", "job_id", "rank", "node_rank", *POD),
)
RDMA_ALLOCATION_INFO = Metric(
    "rankscope_rdma_allocation_info",
    "gauge",
    "Always 1; the container that holds an RDMA device; pci or device is empty if unknown.",
    ("device", "pci", "device_id", "resource", "node", "job_id", *POD),
)
JOB_INFO = Metric(
    "rankscope_job_info",
    "gauge",
    "Always 1; kind and owner of a job, from the labels of its pods on this node.",
    ("job_id", "kind", "project", "class", "owner", "team", "queue", "gang", "parent"),
)
JOB_PODS = Metric(
    "rankscope_job_pods", "gauge", "Pods of the job on this node, by phase.", ("job_id", "phase")
)
RANK_ENVIRONMENT_INFO = Metric(
    "rankscope_rank_environment_info",
    "gauge",
    "Always 1; hash of the rank's transport variables (NCCL_, UCX_, FI_): ranks of a job with"
    " different variables have different hashes.",
    ("job_id", "rank", "hash"),
)
RANK_STARTED = Metric(
    "rankscope_rank_started_timestamp_seconds",
    "gauge",
    "Unix time at which the rank's process was started; only while it lives, and only of processes"
    " that are given the probe, of pods only where one was loaded, outside of them only of those"
    " that have loaded it. Where no process is seen and no ring, that of its container.",
    ("job_id", "rank"),
)
DEVICE_UNHEALTHY = Metric(
    "rankscope_device_unhealthy",
    "gauge",
    "1 while the kubelet reports a device held by a container as unhealthy.",
    ("device_id", "resource", "node", *POD),
)
