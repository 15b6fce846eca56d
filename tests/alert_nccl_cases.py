"""Series that bring about the alerts about NCCL, and about ranks whose surroundings differ."""

from __future__ import annotations

from alert_series import (
    JOB,
    JOB_KNOWN,
    LOG_POD,
    NODE,
    OTHER,
    OWNER,
    amiss,
    finding,
)
from alert_timelines import Case, born, gauge, steady

NCCL_CASES: dict[str, Case] = {
    "RankscopeSocketFallback": amiss("socket_fallback", 1, "plugin_failed"),
    "RankscopeNcclGdrMissing": amiss("gdr_missing", 8),
    "RankscopeNcclInitIncomplete": amiss("ranks_waiting", 1),
    "RankscopeNcclIbErrors": Case(
        (
            born(f'rankscope_nccl_ib_errors_total{{{LOG_POD},device="mlx5_3",status="12"}}'),
            *JOB_KNOWN,
        ),
        linger=15,
        gap=5,
    ),
    "RankscopeNcclCollectiveTimeout": Case(
        (
            born(f'rankscope_nccl_collective_timeouts_total{{{LOG_POD},op="ALLREDUCE"}}'),
            *JOB_KNOWN,
        ),
        linger=15,
        gap=5,
    ),
    "RankscopeNcclIntraNodeDegraded": amiss("shared_memory", 16),
    "RankscopeNcclRanksDiffer": Case(
        (
            steady(f'rankscope_job_nccl_info{{{NODE},{JOB},version="2.27.3"}}'),
            gauge(f'rankscope_job_nccl_info{{{OTHER},{JOB},version="2.21.5"}}', 1, None),
            gauge(f'rankscope_job_nccl_info{{{OTHER},{JOB},version="2.27.3"}}', None, 1, 1),
            OWNER,
        )
    ),
    "RankscopeEnvironmentDiffers": Case(
        (
            steady(f'rankscope_job_environment_info{{{NODE},{JOB},hash="a"}}'),
            gauge(f'rankscope_job_environment_info{{{OTHER},{JOB},hash="b"}}', 1, None),
            gauge(f'rankscope_job_environment_info{{{OTHER},{JOB},hash="a"}}', None, 1, 1),
            OWNER,
        )
    ),
    "RankscopeMissingRank": finding("missing_rank"),
}
