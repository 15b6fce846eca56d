"""Series about how long jobs take to start: pods as seen by the watch, processes by agents."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

PROCESS_PHASES = ("launch", "process", "rendezvous", "nccl_init", "first_step")
"""Phases reported by agents, in order; the watch reports those before them."""

JOB_STARTUP = Metric(
    "rankscope_job_startup_seconds",
    "gauge",
    "Duration of each phase of the job's newest start, by the slowest of its pods or processes. By"
    " rankscope watch: queue, schedule, image (volumes and network included), init. By the agent"
    " of each node: launch (from the container to the process, torchrun's own rendezvous included),"
    " process (imports), rendezvous (init_process_group), nccl_init (NCCL's communicators, within"
    " rendezvous or first_step; 2.22.3 and newer with NCCL_DEBUG=INFO), first_step. Absent while a"
    " phase lasts, and where it is unknown.",
    ("job_id", "phase"),
)
JOB_PROCESSES_STARTED = Metric(
    "rankscope_job_processes_started_timestamp_seconds",
    "gauge",
    "Unix time at which the newest of the job's training processes on this node was started;"
    " absent if their rings do not record it.",
    ("job_id",),
)
