"""PromQL over whose a job is and which job a pod belongs to, recorded: alerts have these as labels.

An alert with other labels is another alert: labels stay while alerts count what a job or pod did,
also when its last pod is gone or its agent is replaced.
"""

from __future__ import annotations

from rankscope_agent.contract.metrics import cluster_jobs, job_logs, nccl_log, pods, summary
from rankscope_dashboards.expressions.joins import OWNER, one_of, stated
from rankscope_dashboards.expressions.promql import (
    BRIDGED,
    JOB_INFO_RECORD,
    LOG_POD,
    POD_JOB_RECORD,
    worst,
)

LONGEST_COUNT = "1h"
"""The longest window in which alerts count what a job's ranks did."""

PRINTED = "15m"
"""That in which they count what its pods printed."""


def job_facts() -> str:
    """Return whose each job is: by its present pods, else as it was recorded before.

    What a job did counts for up to an hour, and how often its queue evicted it for as long as it
    waits there, without any pod.
    """
    empty = ",".join(f'{label}=""' for label in OWNER)
    # An agent that is replaced is silent for a minute.
    info, bare = (
        f"last_over_time({pods.JOB_INFO.name}{one}[{BRIDGED}])" for one in ("", f"{{{empty}}}")
    )
    job = "on (cluster, job_id)"
    lately = f"last_over_time({pods.JOB_INFO.name}[{LONGEST_COUNT}])"
    return (
        f"{stated(info, bare, OWNER, JOB_INFO_RECORD)}\nor {job} ({JOB_INFO_RECORD}"
        f" and {job} ({lately} or {cluster_jobs.JOB_INTERRUPTIONS.name}))"
    )


def jobs_of_printing_pods() -> str:
    """Return the jobs of pods with something to report: each alert about them reads all of it.

    Many faults end the ranks that print them.
    """
    pod = f"on ({', '.join(('cluster', *LOG_POD))})"
    now = summary.POD_JOB_INFO.name
    known = f"{now} or {pod} last_over_time({now}[{BRIDGED}]) or {pod} {POD_JOB_RECORD}"
    return one_of(worst(f"({known}) and {pod} ({_printing()})", "job_id", *LOG_POD), *LOG_POD)


def _printing() -> str:
    """Return series of pods whose job alerts look up."""
    values = (job_logs.JOB_LOG_LOSS, job_logs.JOB_LOG_SAMPLES_RATE)
    counters = (job_logs.JOB_LOG_NONFINITE_LOSSES, nccl_log.NCCL_IB_ERRORS, nccl_log.NCCL_TIMEOUTS)
    counted = (f"last_over_time({one.name}[{PRINTED}])" for one in counters)
    return " or ".join((*(one.name for one in values), *counted))
