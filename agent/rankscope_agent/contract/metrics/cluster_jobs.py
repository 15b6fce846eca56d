"""Series of `rankscope watch --cluster-jobs`: each job's state, and how jobs ended.

A job's own series end an hour after it; totals are kept by class and namespace.
"""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

JOB_WORKLOAD_INFO = Metric(
    "rankscope_job_workload_info",
    "gauge",
    "Always 1; the kind of object that the job is, its class (label rankscope.io/class, else"
    " its priority class) and its queue.",
    ("job_id", "kind", "job_class", "queue"),
)
JOB_STATE = Metric(
    "rankscope_job_state",
    "gauge",
    "Always 1; the state of the job by its own object: pending, queued, suspended, running,"
    " restarting, succeeded, failed, or unknown.",
    ("job_id", "state"),
)
JOB_REPLICAS = Metric(
    "rankscope_job_replicas",
    "gauge",
    "Replicas of the job by role, as its object counts them: wanted, active, succeeded, failed;"
    " absent if its kind of object has none.",
    ("job_id", "role", "state"),
)
JOB_ELASTIC_REPLICAS = Metric(
    "rankscope_job_elastic_replicas",
    "gauge",
    "Least and most replicas of an elastic job, by its object; absent for others.",
    ("job_id", "bound"),
)
JOB_FAILURE_CAUSE = Metric(
    "rankscope_job_failure_cause_info",
    "gauge",
    "Always 1; why the job failed, for an hour after its end; absent for others.",
    ("job_id", "cause"),
)
JOB_PENDING = Metric(
    "rankscope_job_pending_seconds",
    "gauge",
    "Time for which the longest waiting pod of the job, or the job itself in its queue, has been"
    " waiting, by reason: quota, gang, pvc, no_gpu, affinity, taint, resources, image, config,"
    " other. Absent if nothing waits.",
    ("job_id", "reason"),
)
JOB_UNSCHEDULED_PODS = Metric(
    "rankscope_job_unscheduled_pods",
    "gauge",
    "Pods of the job that have no node.",
    ("job_id",),
)
JOB_HELD_GPUS = Metric(
    "rankscope_job_held_gpus",
    "gauge",
    "GPUs, or parts of GPUs, that pods of the job with a node have asked for.",
    ("job_id",),
)
JOB_WAITING_GPUS = Metric(
    "rankscope_job_waiting_gpus",
    "gauge",
    "GPUs that the job holds while other pods of it have no node.",
    ("job_id",),
)
JOB_QUOTA_INFO = Metric(
    "rankscope_job_quota_info",
    "gauge",
    "Always 1; the quota that the job waits for: its ClusterQueue or queue, or a ResourceQuota of"
    " its namespace of which nothing is left while pods are missing.",
    ("job_id", "quota"),
)
JOB_NODE_NOTICE = Metric(
    "rankscope_job_node_notice_timestamp_seconds",
    "gauge",
    "Unix time since which a node of the job is not ready, under pressure or about to go, by its"
    " taints, conditions and Events: not_ready, memory_pressure, disk_pressure, pid_pressure,"
    " network_unavailable, spot_interruption, rebalance, maintenance, scale_down, shutdown,"
    " cordoned; 0 if it is unknown since when.",
    ("job_id", "node", "notice"),
)
NODE_NOTICES = Metric(
    "rankscope_node_notices_total",
    "counter",
    "Notices that appeared on nodes, each once, by kind.",
    ("notice",),
)
QUOTA_USED = Metric(
    "rankscope_quota_used",
    "gauge",
    "What is used of a quota, by resource: bytes, cores, devices or objects. quota_kind is"
    " ResourceQuota, or ClusterQueue (sum over its flavors), which has no namespace.",
    ("quota_kind", "job_namespace", "quota", "resource"),
)
QUOTA_LIMIT = Metric(
    "rankscope_quota_limit",
    "gauge",
    "What may be used of a quota, by resource; for a ClusterQueue without what it may borrow.",
    ("quota_kind", "job_namespace", "quota", "resource"),
)
JOB_INTERRUPTIONS = Metric(
    "rankscope_job_interruptions",
    "gauge",
    "How often the job's queue (Kueue) evicted the job and queued it again; absent without such a"
    " queue.",
    ("job_id",),
)
JOB_COMPLETIONS = Metric(
    "rankscope_job_completions_total",
    "counter",
    "Jobs that ended, each once, by outcome (succeeded, failed, cancelled; unobserved if it went"
    " while nothing was watching), cause of failure, class and namespace. Jobs that had ended"
    " before anything watched do not count.",
    ("job_namespace", "job_class", "outcome", "cause"),
)
JOB_DURATION = Metric(
    "rankscope_job_duration_seconds",
    "histogram",
    "Time from the creation of a job to its success, by class.",
    ("job_class",),
)
JOBS_LATE = Metric(
    "rankscope_jobs_late_total",
    "counter",
    "How many of these jobs took longer than time_to_complete of rankscope.yaml allows the class.",
    ("job_class",),
)
JOB_STARTUPS = Metric(
    "rankscope_job_startup_phase_seconds",
    "histogram",
    "Duration of the phases of starts of jobs by class, each start once; phases are those of"
    " rankscope_job_startup_seconds.",
    ("job_class", "phase"),
)
WATCH_OBJECTS = Metric(
    "rankscope_watch_object_kinds",
    "gauge",
    "Always 1; whether objects of a kind are followed, absent from the cluster, forbidden to the"
    " watch, or failing to be read.",
    ("resource", "condition"),
)
