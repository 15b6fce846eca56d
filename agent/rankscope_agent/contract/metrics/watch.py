"""Series of `rankscope watch`, which judges jobs continuously: incidents and their cost."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

FINDING_ACTIVE = Metric(
    "rankscope_finding_active",
    "gauge",
    "Always 1; an ongoing incident of the job. kind is that of its cause: gpu_compute,"
    " thermal_slowdown, socket_fallback and so on. owned_by is who acts on it: platform, network or"
    " ml.",
    ("job_id", "kind", "severity", "owned_by"),
)
FINDING_CULPRIT_INFO = Metric(
    "rankscope_finding_culprit_info",
    "gauge",
    "Always 1; the culprit of the incident, the worst one if there are several ranks; rank, gpu"
    " and uuid are empty if it concerns whole nodes. symptom is what step times show, empty if"
    " nothing.",
    ("job_id", "kind", "symptom", "rank", "node", "gpu", "uuid", "device", "runbook"),
)
FINDING_LOST_FRACTION = Metric(
    "rankscope_finding_lost_fraction",
    "gauge",
    "Fraction of step time that the incident costs while it lasts; absent if step times do not"
    " show it.",
    ("job_id", "kind"),
)
FINDING_CONFIDENCE = Metric(
    "rankscope_finding_confidence",
    "gauge",
    "Confidence of the verdict, 0 to 1: layers that agree raise it, layers that were not"
    " observed lower it.",
    ("job_id", "kind"),
)
FINDING_SINCE = Metric(
    "rankscope_finding_since_timestamp_seconds",
    "gauge",
    "Unix time at which the incident began; absent if it had begun before the first observation.",
    ("job_id", "kind"),
)
FINDING_SEEN = Metric(
    "rankscope_finding_seen_timestamp_seconds",
    "gauge",
    "Unix time at which the incident was seen last, by an evaluation or by new steps like those"
    " before: an incident of a job whose agents do not answer is exported for five minutes as it"
    " was seen last.",
    ("job_id", "kind"),
)
FINDING_RECOVERED = Metric(
    "rankscope_finding_recovered_timestamp_seconds",
    "gauge",
    "Unix time at which the last incident of the kind ended; absent during an incident, and from a"
    " day after its end.",
    ("job_id", "kind"),
)
LOST_GPU_SECONDS = Metric(
    "rankscope_job_lost_gpu_seconds_total",
    "counter",
    "GPU time lost to ongoing incidents by kind of cause, since the watch started; with --state, as"
    " of the last time that it was saved.",
    ("job_id", "cause"),
)
OBSERVED_GPU_SECONDS = Metric(
    "rankscope_job_observed_gpu_seconds_total",
    "counter",
    "GPU time of the job for which step times show what was lost; the lost GPU time is a part"
    " of it.",
    ("job_id",),
)
JOB_UNOBSERVED = Metric(
    "rankscope_job_unobserved",
    "gauge",
    "Aspects of the job that could not be observed; rankscope diagnose names them.",
    ("job_id",),
)
JOB_ANALYSIS_ERRORS = Metric(
    "rankscope_job_analysis_errors",
    "gauge",
    "Conclusions about the job that the last evaluation could not draw because an analyzer"
    " raised an exception on its data; rankscope diagnose and the watch's log name them.",
    ("job_id",),
)
CONVERGENCE_STATUSES = ("not_finite", "diverging", "jumped", "above_lowest", "at_lowest")

JOB_CONVERGENCE = Metric(
    "rankscope_job_convergence",
    "gauge",
    "Always 1; how the job's loss stands by what its program hands to the probe: not_finite,"
    " diverging (over twice its lowest level), jumped (over one and a half times that before a"
    " restart), above_lowest, at_lowest (within a twentieth of it). Absent before twenty losses.",
    ("job_id", "status"),
)
JOB_CLOCK_OFFSET = Metric(
    "rankscope_job_clock_offset_seconds",
    "gauge",
    "How far the clock of a node of the job is ahead of the others, by the common ends of their"
    " steps; absent for jobs on one node.",
    ("job_id", "node"),
)
WATCH_EVALUATION = Metric(
    "rankscope_watch_evaluation_seconds", "gauge", "Duration of the last evaluation."
)
WATCH_LAST = Metric(
    "rankscope_watch_last_evaluation_timestamp_seconds",
    "gauge",
    "Unix time of the last evaluation that could read any data, by the watch that made it: shard of"
    " shards, 0 of 1 without --total-shards.",
    ("shard", "shards"),
)
WATCH_UNREAD_SINCE = Metric(
    "rankscope_watch_unread_since_timestamp_seconds",
    "gauge",
    "Unix time since which no evaluation could read any data, by the watch that made them: shard of"
    " shards, 0 of 1 without --total-shards; absent if the last one could.",
    ("shard", "shards"),
)
WATCH_FAILURES = Metric(
    "rankscope_watch_failed_evaluations_total",
    "counter",
    "Evaluations that could not read any data, and jobs whose records were invalid.",
)
WATCH_ANALYSIS_ERRORS = Metric(
    "rankscope_watch_analysis_errors_total",
    "counter",
    "Agent answers, verdicts and job reports that were not produced because an exception was"
    " raised, by part: a defect of Rankscope that affects nothing else.",
    ("part",),
)
WATCH_AGENTS = Metric(
    "rankscope_watch_agents",
    "gauge",
    "Agents that the watch queries, by whether they answered.",
    ("state",),
)
WATCH_LEADING = Metric(
    "rankscope_watch_leading",
    "gauge",
    "1 if this watch holds the lease (namespace/name) and evaluates, 0 if it stands by; absent"
    " without --lease.",
    ("lease",),
)
WATCH_LEASE_UP = Metric(
    "rankscope_watch_lease_up",
    "gauge",
    "1 if the lease could be read and, by its holder, renewed at the last attempt, else 0: then"
    " a standby does not know whether another watch evaluates, and the one that evaluates"
    " continues.",
    ("lease",),
)
WATCH_JOBS = Metric(
    "rankscope_watch_jobs",
    "gauge",
    "Jobs judged by the last evaluation; absent if it could read no data.",
)
WATCH_STEP_LOOK = Metric(
    "rankscope_watch_last_step_look_timestamp_seconds",
    "gauge",
    "Unix time of the last look for new steps that an agent answered, by the watch that made it;"
    " absent where steps are read at evaluations alone.",
    ("shard", "shards"),
)
WATCH_STEP_LOOK_SECONDS = Metric(
    "rankscope_watch_step_look_seconds",
    "gauge",
    "Duration of the last look for new steps: asking agents, reading their answers, and judging"
    " what came.",
)
WATCH_STEP_AGENTS = Metric(
    "rankscope_watch_step_agents",
    "gauge",
    "Agents whose steps the watch follows: answering, new (not yet answered once) and silent (for"
    " over a minute).",
    ("state",),
)
WATCH_STEP_RECORDS = Metric(
    "rankscope_watch_step_records_total",
    "counter",
    "Step records that agents answered with: judged, or dropped because their job had more than"
    " there was time for.",
    ("outcome",),
)
JOB_SILENT_RANKS = Metric(
    "rankscope_job_silent_ranks",
    "gauge",
    "Ranks of the job that ran when their agent answered last, over a minute ago: the watch does"
    " not see their steps. Absent where steps are read at evaluations alone.",
    ("job_id",),
)
