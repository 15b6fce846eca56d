"""Series of the node itself: pressure, memory, disks, clock, and what training pods do to it."""

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
    "Memory that can be given to programs without swapping.",
)
MEMORY_TOTAL = Metric("rankscope_memory_total_bytes", "gauge", "Memory of the node.")
OOM_KILLS = Metric(
    "rankscope_oom_kills_total", "counter", "Processes killed on the node for want of memory."
)
PIDS_USED = Metric(
    "rankscope_pids_used_ratio", "gauge", "Tasks of the node as a part of the most it may have."
)
DISK_USED = Metric(
    "rankscope_filesystem_used_ratio",
    "gauge",
    "Used part of the file system that pods' ephemeral storage is on.",
    ("filesystem",),
)
INODES_USED = Metric(
    "rankscope_filesystem_inodes_used_ratio",
    "gauge",
    "Used part of the inodes of the file system that pods' ephemeral storage is on.",
    ("filesystem",),
)
SOFTNET_DROPPED = Metric(
    "rankscope_softnet_dropped_total",
    "counter",
    "Packets dropped as a CPU's queue of received packets was full.",
)
SOFTNET_SQUEEZED = Metric(
    "rankscope_softnet_squeezed_total",
    "counter",
    "Times a CPU stopped receiving packets as its time for that was up.",
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
    "What the kernel still has to correct the clock by, as its time daemon last said.",
)
CLOCK_MAX_ERROR = Metric(
    "rankscope_clock_max_error_seconds",
    "gauge",
    "Largest error that the clock can have; grows while nobody disciplines it.",
)
CLOCK_SYNCHRONIZED = Metric(
    "rankscope_clock_synchronized", "gauge", "1 while a time daemon keeps the clock, else 0."
)
BOOT_INFO = Metric(
    "rankscope_boot_info", "gauge", "Always 1; identity of the node's present boot.", ("boot_id",)
)
BOOT_TIME = Metric(
    "rankscope_boot_timestamp_seconds", "gauge", "Unix time at which the node was booted."
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
    "Failed commands, retries and resets of an NVMe controller, where its kernel counts them.",
    ("controller", "event"),
)
SHM_SIZE = Metric(
    "rankscope_shm_size_bytes",
    "gauge",
    "Size of /dev/shm in a training pod; that of the node with an empty pod_uid.",
    POD,
)
SHM_USED = Metric(
    "rankscope_shm_used_bytes",
    "gauge",
    "Use of /dev/shm in a training pod; that of the node with an empty pod_uid.",
    POD,
)
MEMLOCK = Metric(
    "rankscope_memlock_limit_bytes",
    "gauge",
    "How much memory a training pod's process may lock, +Inf for any; RDMA locks its buffers.",
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
    "Reads and writes of a training pod to block devices.",
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
    "Periods of a training pod's CPU limit: all, and those in which it was throttled.",
    (*POD, "kind"),
)
POD_THROTTLED = Metric(
    "rankscope_pod_cpu_throttled_seconds_total",
    "counter",
    "Time for which a training pod was held back by its CPU limit, summed over CPUs.",
    POD,
)
POD_OOM_KILLS = Metric(
    "rankscope_pod_oom_kills_total",
    "counter",
    "Processes of a training pod killed for want of memory.",
    POD,
)
NFS_OPERATIONS = Metric(
    "rankscope_nfs_operations_total",
    "counter",
    "NFS requests of a training pod's mounts (node's own: empty pod_uid) by operation.",
    (*POD, "operation"),
)
NFS_RETRANSMISSIONS = Metric(
    "rankscope_nfs_retransmissions_total",
    "counter",
    "NFS requests that were sent again.",
    (*POD, "operation"),
)
NFS_ROUND_TRIP = Metric(
    "rankscope_nfs_round_trip_seconds_total",
    "counter",
    "Time from sending NFS requests to their answers; over operations it is the mean round trip.",
    (*POD, "operation"),
)
NFS_TIMEOUTS = Metric(
    "rankscope_nfs_timeouts_total",
    "counter",
    "NFS requests that had no answer in time.",
    (*POD, "operation"),
)
