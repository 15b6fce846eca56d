"""Series about a job's state: its pods' waits, failures, restarts and preemptions on a node."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

JOB_WAITING_PODS = Metric(
    "rankscope_job_waiting_pods",
    "gauge",
    "Pods of the job on this node with a container that waits, by reason as kubectl shows it; a"
    " crash loop lasts until ten minutes after its last failure. Absent if there are none.",
    ("job_id", "reason"),
)
JOB_LAST_FAILURE = Metric(
    "rankscope_job_last_failure_timestamp_seconds",
    "gauge",
    "Unix time of the newest failure or preemption of the job's pods on this node, by reason;"
    " detail is the class of the exit code, or what evicts the pod.",
    ("job_id", "reason", "detail"),
)
JOB_FAILURES = Metric(
    "rankscope_job_failures_total",
    "counter",
    "Failed containers, and pods that failed as a whole, of the job on this node since the agent"
    " started.",
    ("job_id",),
)
JOB_RESTARTS = Metric(
    "rankscope_job_restarts_total",
    "counter",
    "Containers of the job started again on this node, and pods made anew in the place of others,"
    " since the agent started.",
    ("job_id",),
)
JOB_PREEMPTIONS = Metric(
    "rankscope_job_preemptions_total",
    "counter",
    "Pods of the job taken away from this node for others (condition DisruptionTarget) since the"
    " agent started.",
    ("job_id",),
)
JOB_HISTORIES_DROPPED = Metric(
    "rankscope_job_histories_dropped",
    "gauge",
    "Jobs with a running pod on this node whose failures, restarts and preemptions are not counted"
    " because there are too many jobs.",
)
JOB_CONTAINER_RESTARTS = Metric(
    "rankscope_job_container_restarts",
    "gauge",
    "Restarts of containers in the job's present pods on this node, as Kubernetes counts them.",
    ("job_id",),
)
JOB_ATTEMPT = Metric(
    "rankscope_job_attempt",
    "gauge",
    "Restarts of the whole job: by its launcher's labels (JobSet, TrainJob, Volcano, DLRover), by"
    " torchrun within its pods, or, from rankscope watch --cluster-jobs, by its object; absent if"
    " none of them counts.",
    ("job_id", "source"),
)
JOB_RESTARTS_LEFT = Metric(
    "rankscope_job_restarts_left",
    "gauge",
    "Restarts that torchrun still makes before it gives the job up; absent if its limit or count"
    " is unknown.",
    ("job_id",),
)
JOB_ELASTIC_PODS = Metric(
    "rankscope_job_elastic_pods",
    "gauge",
    "Least and most pods with which an elastic job trains (PET_NNODES min:max); absent for others.",
    ("job_id", "bound"),
)
