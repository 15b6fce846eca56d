"""Series that bring about the alerts about stragglers, hangs and how well jobs do."""

from __future__ import annotations

from alert_series import (
    ALIVE,
    CLIENTS,
    JOB,
    JOB_KNOWN,
    LOG_POD,
    NODE,
    OWNER,
    RANK_THERE,
    and_more,
    buckets,
    finding,
    steps_of,
    utilization,
)
from alert_timelines import Case, counter, gauge

TRAINING_CASES: dict[str, Case] = {
    "RankscopeStraggler": finding("thermal_slowdown", "gpu_compute", 0.37),
    "RankscopeStragglerData": finding("data_loader", "data_loader", 0.051),
    "RankscopeSlowNetworkGroup": finding("network_link", "network_link", 0.051),
    "RankscopeGlobalSlowdown": finding("global_slowdown", "global_slowdown", 0.051),
    "RankscopeUnevenWork": finding("partition_imbalance", "partition_imbalance", 0.051),
    "RankscopeSlowStorage": and_more(
        finding("storage_checkpoint", "storage_checkpoint", 0.051), *CLIENTS, RANK_THERE
    ),
    "RankscopeHostStalls": finding("host_transient", "host_transient", 0.051),
    "RankscopeHang": finding("rank_stopped", "hang", 1.0),
    "RankscopeJobStalled": Case(
        (counter(steps_of(), 0, 12, 1), ALIVE, OWNER), lag=11, settle=20, gap=2
    ),
    "RankscopeThroughputDegraded24h": Case(
        (
            counter(f"rankscope_job_samples_total{{{NODE},{JOB}}}", 5, 10, 6.5),
            ALIVE,
            OWNER,
        ),
        lag=330,
        linger=1450,
        settle=1450,
        step=12,
        gap=20,
        again=10,
    ),
    "RankscopeStepTailSlow": Case((*buckets((90, 99, 96), (10, 1, 4)), OWNER), lag=6, settle=15),
    "RankscopeSyncShareHigh": Case(
        (
            counter(f"rankscope_sync_time_seconds_sum{{{NODE},{JOB}}}", 31, 6, 29),
            counter(steps_of("_sum"), 60, 60, 60),
            OWNER,
        ),
        lag=6,
    ),
    "RankscopeLowGpuUtilisation": Case(
        utilization(0.2, 0.9, 0.31),
        lag=61,
        settle=70,
    ),
    "RankscopeGpusIdle": Case(
        utilization(0.0, 0.9, 0.021),
        lag=61,
        settle=70,
    ),
    "RankscopeNonFiniteLoss": Case(
        (
            counter(
                f"rankscope_job_log_nonfinite_losses_total{{{LOG_POD},"
                'framework="megatron",source="stdout"}',
                1,
            ),
            *JOB_KNOWN,
        ),
        lag=15,
    ),
    "RankscopeLossDiverging": Case(
        (
            gauge(
                f'rankscope_job_log_loss{{{LOG_POD},framework="megatron",source="stdout"}}',
                4.1,
                2.0,
                3.9,
            ),
            *JOB_KNOWN,
        )
    ),
}
