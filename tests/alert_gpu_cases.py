"""Series that bring about the alerts about GPUs: Xids, memory, heat, power, PCIe and NVLink."""

from __future__ import annotations

from alert_series import (
    HOLDER,
    condition,
    finding,
    of_gpu,
)
from alert_timelines import Case, event, gauge

GPU_CASES: dict[str, Case] = {
    "RankscopeXidFatal": Case(
        (
            event(of_gpu("rankscope_gpu_xid_last_timestamp_seconds", 'xid="79",severity="fatal"')),
            event(of_gpu("rankscope_gpu_xid_last_timestamp_seconds", 'xid="13",severity="error"')),
            event(of_gpu("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="79"')),
            event(of_gpu("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="43"')),
            HOLDER,
        ),
        lag=10,
    ),
    "RankscopeGpuLost": condition("lost", "row_remap_pending"),
    "RankscopeGpuMemoryError": Case(
        (gauge(of_gpu("rankscope_gpu_recent_uncorrected_errors"), 1, None, None), HOLDER)
    ),
    "RankscopeGpuRowRemapPending": condition("row_remap_pending", "row_remap_failure"),
    "RankscopeGpuRowRemapFailed": condition("row_remap_failure", "row_remap_pending"),
    "RankscopeGpuThermalSlowdown": condition("thermal_slowdown", "power_brake", lag=5),
    "RankscopeGpuPowerLimited": Case(
        (
            gauge(of_gpu("rankscope_gpu_power_limit_reduced_ratio"), 5 / 7, None, 0.957),
            HOLDER,
        )
    ),
    "RankscopeGpuPcieDegraded": Case(
        (
            gauge(of_gpu("rankscope_gpu_pcie_link_reduced_ratio"), 0.5, None, None),
            HOLDER,
        )
    ),
    "RankscopeNvlinkFault": Case(
        (
            gauge(of_gpu("rankscope_gpu_nvlink_link_up", 'link="4"'), 0, 1, 1),
            event(of_gpu("rankscope_gpu_xid_last_timestamp_seconds", 'xid="149",severity="warn"')),
            event(of_gpu("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="145"')),
            HOLDER,
        )
    ),
    "RankscopeGpuClockLow": finding("clock_low", "gpu_compute"),
    "RankscopeGpuHardwareFault": finding("gpu_hardware"),
    "RankscopeGpuDriverFault": finding("driver"),
    "RankscopeGpuProgramFault": finding("app"),
}
