"""Series of the node itself: pressure, memory, disks, clock, and its training pods."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

POD = ("pod_uid",)

PRESSURE = Metric(
    "rankscope_host_pressure_seconds_total",
    "counter",
    "Time in which some or all (full) tasks of the node waited for a resource.",
    ("resource", "kind"),
)
MEMORY_AVAILABLE = Metric(
    "rankscope_memory_available_bytes",
    "gauge",
    "Memory that programs can use without swapping.",
)
MEMORY_TOTAL = Metric("rankscope_memory_total_bytes", "gauge", "Memory of the node.")
OOM_KILLS = Metric(
    "rankscope_oom_kills_total", "counter", "Processes on the node killed for lack of memory."
)
PIDS_USED = Metric(
    "rankscope_pids_used_ratio", "gauge", "Tasks on the node relative to the maximum."
)
DISK_USED = Metric(
    "rankscope_filesystem_used_ratio",
    "gauge",
    "Used share of the file system that holds pods' ephemeral storage.",
    ("filesystem",),
)
INODES_USED = Metric(
    "rankscope_filesystem_inodes_used_ratio",
    "gauge",
    "Used share of the inodes of the file system that holds pods' ephemeral storage.",
    ("filesystem",),
)
SOFTNET_DROPPED = Metric(
    "rankscope_softnet_dropped_total",
    "counter",
    "Packets dropped because a CPU's receive queue was full.",
)
SOFTNET_SQUEEZED = Metric(
    "rankscope_softnet_squeezed_total",
    "counter",
    "Times a CPU stopped receiving packets because its time for that was used up.",
)
EDAC_ERRORS = Metric(
    "rankscope_edac_errors_total",
    "counter",
    "Memory errors of the node by severity (corrected, uncorrected).",
    ("severity",),
)
EDAC_CONTROLLER = Metric(
    "rankscope_edac_controller_errors_total",
    "counter",
    "Memory errors by memory controller and severity, of controllers that had any.",
    ("controller", "severity"),
)
CLOCK_OFFSET = Metric(
    "rankscope_clock_offset_seconds",
    "gauge",
    "Offset that the kernel still has to correct, as last set by the time daemon.",
)
CLOCK_MAX_ERROR = Metric(
    "rankscope_clock_max_error_seconds",
    "gauge",
    "Largest possible error of the clock; it grows while no time daemon disciplines the clock.",
)
CLOCK_SYNCHRONIZED = Metric(
    "rankscope_clock_synchronized",
    "gauge",
    "1 while a time daemon keeps the clock synchronised, else 0.",
)
BOOT_INFO = Metric(
    "rankscope_boot_info", "gauge", "Always 1; ID of the node's current boot.", ("boot_id",)
)
BOOT_TIME = Metric(
    "rankscope_boot_timestamp_seconds", "gauge", "Unix time at which the node booted."
)
NVME_CONTROLLERS = Metric(
    "rankscope_nvme_controllers",
    "gauge",
    "NVMe controllers of the node by state (live, dead, other).",
    ("state",),
)
NVME_EVENTS = Metric(
    "rankscope_nvme_events_total",
    "counter",
    "Failed commands, retries and resets of an NVMe controller, where the kernel counts them.",
    ("controller", "event"),
)
SHM_SIZE = Metric(
    "rankscope_shm_size_bytes",
    "gauge",
    "Size of /dev/shm in a training pod; an empty pod_uid stands for the node's own.",
    POD,
)
SHM_USED = Metric(
    "rankscope_shm_used_bytes",
    "gauge",
    "Used bytes of /dev/shm in a training pod; an empty pod_uid stands for the node's own.",
    POD,
)
MEMLOCK = Metric(
    "rankscope_memlock_limit_bytes",
    "gauge",
    "How much memory a process of a training pod may lock, +Inf if unlimited; RDMA locks its"
    " buffers.",
    POD,
)
POD_IO_BYTES = Metric(
    "rankscope_pod_io_bytes_total",
    "counter",
    "Bytes that a training pod read from and wrote to block devices.",
    (*POD, "direction"),
)
POD_IO_OPERATIONS = Metric(
    "rankscope_pod_io_operations_total",
    "counter",
    "Read and write operations of a training pod on block devices.",
    (*POD, "direction"),
)
POD_PRESSURE = Metric(
    "rankscope_pod_pressure_seconds_total",
    "counter",
    "Time in which some tasks of a training pod waited for a resource.",
    (*POD, "resource"),
)
POD_PERIODS = Metric(
    "rankscope_pod_cpu_periods_total",
    "counter",
    "Periods of a training pod's CPU limit: all of them, and those in which it was throttled.",
    (*POD, "kind"),
)
POD_THROTTLED = Metric(
    "rankscope_pod_cpu_throttled_seconds_total",
    "counter",
    "Time for which a training pod was throttled by its CPU limit, summed over CPUs.",
    POD,
)
POD_OOM_KILLS = Metric(
    "rankscope_pod_oom_kills_total",
    "counter",
    "Processes of a training pod killed for lack of memory.",
    POD,
)
NFS_OPERATIONS = Metric(
    "rankscope_nfs_operations_total",
    "counter",
    "NFS requests of a training pod's mounts by operation; an empty pod_uid stands for the"
    " node's own mounts.",
    (*POD, "operation"),
)
NFS_RETRANSMISSIONS = Metric(
    "rankscope_nfs_retransmissions_total",
    "counter",
    "NFS requests that were retransmitted.",
    (*POD, "operation"),
)
NFS_ROUND_TRIP = Metric(
    "rankscope_nfs_round_trip_seconds_total",
    "counter",
    "Time between sending NFS requests and receiving their answers; divided by operations, the"
    " mean round trip.",
    (*POD, "operation"),
)
NFS_TIMEOUTS = Metric(
    "rankscope_nfs_timeouts_total",
    "counter",
    "NFS requests that timed out.",
    (*POD, "operation"),
)
