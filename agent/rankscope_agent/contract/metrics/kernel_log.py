"""Series from the kernel's log."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

GPU = ("gpu", "uuid", "pci")

XID_ERRORS = Metric(
    "rankscope_gpu_xid_errors_total",
    "counter",
    "Xids of the GPU by code, once they have occurred; severity is info, warn, error or fatal,"
    " action is what the line and its code ask for first.",
    (*GPU, "xid", "severity", "action"),
)
XID_LAST = Metric(
    "rankscope_gpu_xid_last_timestamp_seconds",
    "gauge",
    "Unix time at which the kernel last reported this Xid of the GPU.",
    (*GPU, "xid", "severity", "action"),
)
SXID_ERRORS = Metric(
    "rankscope_nvswitch_sxid_errors_total",
    "counter",
    "SXids of the NVSwitch by code, once they have occurred.",
    ("pci", "sxid", "severity"),
)
SXID_LAST = Metric(
    "rankscope_nvswitch_sxid_last_timestamp_seconds",
    "gauge",
    "Unix time at which the kernel last reported this SXid of the NVSwitch.",
    ("pci", "sxid", "severity"),
)
GPU_FALLEN = Metric(
    "rankscope_gpu_fallen_off_bus_total",
    "counter",
    "Times the driver reported that the GPU has fallen off the bus, with or without an Xid.",
    GPU,
)
GPU_INIT_FAILURES = Metric(
    "rankscope_gpu_init_failures_total",
    "counter",
    "Times the driver could not initialise the GPU (RmInitAdapter).",
    GPU,
)
KERNEL_EVENTS = Metric(
    "rankscope_kernel_events_total",
    "counter",
    "Events in the kernel log by kind.",
    ("kind",),
)
KERNEL_LAST_EVENT = Metric(
    "rankscope_kernel_last_event_timestamp_seconds",
    "gauge",
    "Unix time of the last event of this kind in the kernel log.",
    ("kind",),
)
PCIE_ERRORS = Metric(
    "rankscope_pcie_aer_events_total",
    "counter",
    "PCIe errors that the kernel reported (AER) by device; severity info is corrected.",
    ("pci", "severity"),
)
NIC_TIMEOUTS = Metric(
    "rankscope_nic_command_timeouts_total",
    "counter",
    "Commands that the adapter's firmware did not answer.",
    ("pci",),
)
DISK_ERRORS = Metric(
    "rankscope_kernel_disk_errors_total",
    "counter",
    "Errors of the disk, its file system or its controller in the kernel log.",
    ("disk",),
)
KERNEL_OOM_KILLS = Metric(
    "rankscope_kernel_oom_kills_total",
    "counter",
    "Processes killed for lack of memory, by whose limit was reached (cgroup, node) and by pod.",
    ("scope", "pod_uid"),
)
POD_LAST_EVENT = Metric(
    "rankscope_kernel_pod_last_event_timestamp_seconds",
    "gauge",
    "Unix time at which the kernel last ended a process of the pod, by kind (oom_kill,"
    " user_fault) and by whose memory was full (cgroup, node); pod_uid is empty if the pod is"
    " unknown.",
    ("kind", "scope", "pod_uid"),
)
RECORDS_LOST = Metric(
    "rankscope_kernel_records_lost_total",
    "counter",
    "Records overwritten in the kernel's ring buffer before they were read; a lower bound if"
    " read by syslog(2).",
)
KERNEL_LOG_INFO = Metric(
    "rankscope_kernel_log_info",
    "gauge",
    "Always 1; the source of the kernel log: kmsg, syslog or journal.",
    ("source",),
)
REBOOTS = Metric(
    "rankscope_node_reboots_total",
    "counter",
    "Boots since the agent first ran on the node, by how the previous boot ended: clean,"
    " crashed (it left a dump in pstore), unexpected (no shutdown was recorded), unknown.",
    ("reason",),
)
BOOT_TIME = Metric(
    "rankscope_node_last_reboot_timestamp_seconds",
    "gauge",
    "Unix time of the last reboot of the node that the agent observed.",
    ("reason",),
)
