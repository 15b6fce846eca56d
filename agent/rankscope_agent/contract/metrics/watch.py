"""Series of `rankscope watch`, which judges jobs again and again: what is wrong, what it costs."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

FINDING_ACTIVE = Metric(
    "rankscope_finding_active",
    "gauge",
    "Always 1; an incident of the job that goes on. kind is that of its cause: gpu_compute,"
    " thermal_slowdown, socket_fallback and so on.",
    ("job_id", "kind", "severity"),
)
FINDING_CULPRIT_INFO = Metric(
    "rankscope_finding_culprit_info",
    "gauge",
    "Always 1; whom the incident is about, of several ranks the worst; rank, gpu and uuid are empty"
    " where it is about whole nodes. symptom is what step times show, empty if nothing.",
    ("job_id", "kind", "symptom", "rank", "node", "gpu", "uuid", "device", "runbook"),
)
FINDING_LOST_FRACTION = Metric(
    "rankscope_finding_lost_fraction",
    "gauge",
    "Part of step time that the incident takes while it lasts; absent where step times do not say.",
    ("job_id", "kind"),
)
FINDING_CONFIDENCE = Metric(
    "rankscope_finding_confidence",
    "gauge",
    "How sure the verdict is, 0 to 1: layers that agree raise it, layers unseen lower it.",
    ("job_id", "kind"),
)
FINDING_SINCE = Metric(
    "rankscope_finding_since_timestamp_seconds",
    "gauge",
    "Unix time at which the incident began; absent if it was there when we looked first.",
    ("job_id", "kind"),
)
LOST_GPU_SECONDS = Metric(
    "rankscope_job_lost_gpu_seconds_total",
    "counter",
    "GPU time lost to running incidents by kind of cause, since the watch began.",
    ("job_id", "cause"),
)
OBSERVED_GPU_SECONDS = Metric(
    "rankscope_job_observed_gpu_seconds_total",
    "counter",
    "GPU time of the job in which step times told what was lost: what lost GPU time is a part of.",
    ("job_id",),
)
JOB_UNOBSERVED = Metric(
    "rankscope_job_unobserved",
    "gauge",
    "Things about the job that could not be seen; rankscope diagnose names them.",
    ("job_id",),
)
JOB_ANALYSIS_ERRORS = Metric(
    "rankscope_job_analysis_errors",
    "gauge",
    "Things that the last evaluation did not conclude about the job because an analyzer raised on"
    " its data; rankscope diagnose and the watch's log name them.",
    ("job_id",),
)
JOB_CLOCK_OFFSET = Metric(
    "rankscope_job_clock_offset_seconds",
    "gauge",
    "By how much the clock of a node of the job is ahead of the others', by the common ends of"
    " their steps; absent for jobs on one node.",
    ("job_id", "node"),
)
WATCH_EVALUATION = Metric(
    "rankscope_watch_evaluation_seconds", "gauge", "Time that the last evaluation took."
)
WATCH_LAST = Metric(
    "rankscope_watch_last_evaluation_timestamp_seconds",
    "gauge",
    "Unix time of the last evaluation that could read something.",
)
WATCH_FAILURES = Metric(
    "rankscope_watch_failed_evaluations_total",
    "counter",
    "Evaluations that could read nothing at all, and jobs whose records made no sense.",
)
WATCH_ANALYSIS_ERRORS = Metric(
    "rankscope_watch_analysis_errors_total",
    "counter",
    "Answers of agents, verdicts and reports of jobs that were not made because reading or judging"
    " them raised, by what was being made: a defect of Rankscope that cost nothing else.",
    ("part",),
)
WATCH_AGENTS = Metric(
    "rankscope_watch_agents",
    "gauge",
    "Agents that the watch asks, by whether they answered.",
    ("state",),
)
WATCH_LEADING = Metric(
    "rankscope_watch_leading",
    "gauge",
    "Whether this watch holds the lease (namespace/name) and evaluates: 0 on those that stand by."
    " Absent without --lease.",
    ("lease",),
)
WATCH_LEASE_UP = Metric(
    "rankscope_watch_lease_up",
    "gauge",
    "Whether the lease could be read and, by who holds it, renewed at the last attempt: where it is"
    " 0, a watch that stands by does not know whether any other evaluates, and one that evaluates"
    " goes on.",
    ("lease",),
)
WATCH_JOBS = Metric("rankscope_watch_jobs", "gauge", "Jobs that the last evaluation judged.")
