"""Series that bring about the alerts about hosts: resources, hardware, reboots and memory."""

from __future__ import annotations

from alert_series import (
    JOB,
    JOB_KNOWN,
    NODE,
    OTHER,
    finding,
)
from alert_timelines import Case, counter, event, gauge

HOST_CASES: dict[str, Case] = {
    "RankscopeNodeResourceExhausted": Case(
        (gauge(f'rankscope_node_resource_used_ratio{{{NODE},resource="disk"}}', 0.96, 0.5, 0.94),)
    ),
    "RankscopeHostHardware": Case(
        (
            *(  # of one memory error
                event(f'rankscope_kernel_last_event_timestamp_seconds{{{NODE},kind="{kind}"}}')
                for kind in ("machine_check", "memory_uncorrected")
            ),
            counter(f'rankscope_edac_errors_total{{{NODE},severity="uncorrected"}}', 1),
            event(f'rankscope_kernel_last_event_timestamp_seconds{{{OTHER},kind="user_fault"}}'),
        ),
        lag=0,
        linger=16,
    ),
    "RankscopeDeviceNotStarted": Case(
        (
            event(
                f'rankscope_kernel_last_event_timestamp_seconds{{{NODE},kind="gpu_probe_failure"}}'
            ),
            event(f'rankscope_kernel_last_event_timestamp_seconds{{{OTHER},kind="link_down"}}'),
        ),
        lag=10,
    ),
    "RankscopeNodeReboot": Case(
        (
            event(f'rankscope_node_last_reboot_timestamp_seconds{{{NODE},reason="crashed"}}'),
            event(f'rankscope_node_last_reboot_timestamp_seconds{{{OTHER},reason="clean"}}'),
        ),
        lag=30,
    ),
    "RankscopeSharedMemoryFull": finding("shm_full"),
    "RankscopeOomRepeated": Case(
        (
            gauge(f'rankscope_pod_recent_oom_kills{{{NODE},{JOB},pod_uid="p-1"}}', 2, None, 1),
            gauge(f'rankscope_pod_recent_oom_kills{{{OTHER},{JOB},pod_uid="p-2"}}', 1, None, 1),
            *JOB_KNOWN,
        )
    ),
}
