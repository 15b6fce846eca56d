"""Which kinds of findings can cause which others: one table, read by `incidents`.

Each row gives the depth of a kind of finding in the machine and the other kinds it causes on the
ranks that it affects. This table alone decides which of two findings is the cause and which the
symptom. The order in which they were noticed does not: counters are read every few seconds, and a
slow rank is certain only after a dozen steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SLOW_RANK = frozenset(("gpu_compute", "host_transient"))
SLOW_INPUT = frozenset(("data_loader", "storage_checkpoint"))
SLOW_NETWORK = frozenset(("network_link", "global_slowdown"))
RANKS_GONE = frozenset(("missing_rank", "job_ending", "rank_ended", "job_over"))
NO_RANK = RANKS_GONE | {"pod_failed", "crash_loop"}
LOGGED = frozenset(("attempt_failed",))
STUCK = frozenset(("collective_timeout", "init_incomplete", "ras_missing", "ras_lag", "hang"))
HANG = frozenset(("hang",))
TRANSPORT = frozenset(("socket_fallback", "gdr_missing", "ib_errors"))
GPU_STATE = frozenset(
    ("gpu_unresponsive", "gpu_recovery_needed", "device_unhealthy", "fabric_unhealthy")
)
CLOCKS = frozenset(("clock_low", "power_low", "temperature_high"))
LOSSES = frozenset(("errors", "retransmission", "congestion", "asymmetric_rail"))
LOSSES_WRONG = frozenset(("loss_jump", "loss_diverging", "loss_not_finite"))
MEMORY = frozenset(("ecc_uncorrected", "row_remap_failed", "row_remap_pending"))
HOST_FAULTS = frozenset(("host_transient", "cpu_pressure", "memory_pressure", "io_pressure"))


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding.

    Args:
        depth: 0 is what users notice, larger is nearer to the cause; of two findings that could
            each explain a third, the deeper one is called the cause. -1 is a job in which nothing
            moves: anything else known about it is nearer to the cause.
        explains: kinds that it causes on the ranks that it affects.
        reported_alone: True if it is an incident even when step times do not show it.
        seen_elsewhere: True if it shows on ranks that wait for the faulty one, so that it may not
            be seen where its cause is.
    """

    depth: int = 0
    explains: frozenset[str] = frozenset()
    reported_alone: bool = False
    seen_elsewhere: bool = False


ENDED = (NO_RANK - {"crash_loop"}) | {"pod_preempted", "replica_group_lost"}
"""What happens to the ranks of a node that fails."""

GONE = NO_RANK | STUCK | SLOW_RANK
"""What a lost GPU, node or process causes."""

KINDS: Mapping[str, Kind] = {
    # What the timing of steps shows.
    "hang": Kind(-1, reported_alone=True, seen_elsewhere=True),
    "long_pause": Kind(),
    "global_slowdown": Kind(),
    "partition_imbalance": Kind(1, frozenset(("ras_lag",))),
    "gpu_compute": Kind(2, frozenset(("collective_timeout", "ras_lag"))),
    "data_loader": Kind(2, frozenset(("collective_timeout", "ras_lag"))),
    "storage_checkpoint": Kind(2, frozenset(("collective_timeout", "ras_lag"))),
    "host_transient": Kind(2, frozenset(("ras_lag",))),
    "network_link": Kind(2, frozenset(("global_slowdown", "ras_lag"))),
    "missing_rank": Kind(3, STUCK, reported_alone=True),
    # The job continues without the group, so what ended the group is no failure of the job.
    "replica_group_lost": Kind(
        7, frozenset(("pod_failed", "attempt_failed", "crash_loop")), reported_alone=True
    ),
    "job_ending": Kind(3, STUCK),
    "rank_ended": Kind(),
    "job_over": Kind(),
    "rank_stopped": Kind(4, STUCK | SLOW_RANK, reported_alone=True),
    "rank_was_stopped": Kind(4, SLOW_RANK),
    # What NCCL and the job's own logs say.
    "ras_lag": Kind(0, HANG, seen_elsewhere=True),
    "ras_missing": Kind(1, HANG, seen_elsewhere=True),
    "init_incomplete": Kind(1, HANG, reported_alone=True, seen_elsewhere=True),
    "collective_timeout": Kind(1, HANG, reported_alone=True, seen_elsewhere=True),
    "gdr_missing": Kind(3, SLOW_NETWORK, reported_alone=True),
    "channels_differ": Kind(4, SLOW_NETWORK | HANG, reported_alone=True),
    "socket_fallback": Kind(4, SLOW_NETWORK | {"gdr_missing"}, reported_alone=True),
    "attempt_failed": Kind(6, NO_RANK | STUCK, reported_alone=True),
    "ib_errors": Kind(6, SLOW_NETWORK | GONE, reported_alone=True),
    # Checkpoints, and what the training process reports about itself.
    "checkpoint_overdue": Kind(reported_alone=True),
    "checkpoint_share": Kind(reported_alone=True),
    "checkpoint_overwritten": Kind(3, frozenset(("checkpoint_not_loaded",)), reported_alone=True),
    "checkpoint_failed": Kind(1, frozenset(("checkpoint_overdue",)), reported_alone=True),
    "checkpoint_not_loaded": Kind(2, reported_alone=True),
    "checkpoint_store_full": Kind(
        2, frozenset(("checkpoint_failed", "checkpoint_overdue")), reported_alone=True
    ),
    "loss_jump": Kind(reported_alone=True),
    "loss_diverging": Kind(1, reported_alone=True),
    "loss_not_finite": Kind(2, frozenset(("loss_diverging",)), reported_alone=True),
    "learning_rate_changed": Kind(3, LOSSES_WRONG, reported_alone=True),
    "batch_changed": Kind(4, LOSSES_WRONG | {"learning_rate_changed"}, reported_alone=True),
    "loader_worker_died": Kind(
        5, (NO_RANK - {"crash_loop"}) | STUCK | {"data_loader"}, reported_alone=True
    ),
    "cuda_out_of_memory": Kind(7, NO_RANK | STUCK | LOGGED, reported_alone=True),
    # Pods and environment.
    "pod_pending": Kind(4, frozenset(("missing_rank", "init_incomplete")), reported_alone=True),
    "pod_failed": Kind(4, STUCK | RANKS_GONE, reported_alone=True),
    "crash_loop": Kind(5, STUCK | RANKS_GONE | {"pod_failed"}, reported_alone=True),
    "image_not_pulled": Kind(
        5, frozenset(("missing_rank", "init_incomplete", "pod_pending")), reported_alone=True
    ),
    "container_not_created": Kind(
        5, frozenset(("missing_rank", "init_incomplete", "pod_pending")), reported_alone=True
    ),
    "pod_preempted": Kind(7, STUCK | NO_RANK | LOGGED | {"pod_pending"}, reported_alone=True),
    "device_unhealthy": Kind(6, GONE, reported_alone=True),
    "environment_differs": Kind(
        7, TRANSPORT | SLOW_NETWORK | {"init_incomplete", "collective_timeout"}
    ),
    # The host.
    "cpu_starved": Kind(3, SLOW_RANK | SLOW_INPUT),
    "workers_starved": Kind(3, SLOW_INPUT),
    "cpu_pressure": Kind(3, SLOW_RANK | SLOW_INPUT),
    "io_pressure": Kind(3, SLOW_INPUT),
    "memory_pressure": Kind(4, SLOW_RANK | SLOW_INPUT | {"io_pressure", "cpu_pressure"}),
    "cpu_throttled": Kind(
        4, SLOW_RANK | SLOW_INPUT | {"cpu_pressure", "cpu_starved", "workers_starved"}
    ),
    "nfs_slow": Kind(4, SLOW_INPUT | {"io_pressure"}),
    "storage_client_slow": Kind(4, SLOW_INPUT | {"io_pressure"}),
    "disk_full": Kind(6, NO_RANK | {"storage_checkpoint", "checkpoint_failed"}),
    "shm_full": Kind(6, NO_RANK | {"data_loader", "loader_worker_died"}),
    "pids_exhausted": Kind(6, NO_RANK | {"data_loader"}),
    "oom_kill": Kind(
        7, NO_RANK | STUCK | LOGGED | {"data_loader", "loader_worker_died"}, reported_alone=True
    ),
    "unattributed_kill": Kind(),
    # GPUs.
    "power_low": Kind(2),
    "temperature_high": Kind(2),
    "clock_low": Kind(3, frozenset(("gpu_compute", "power_low"))),
    "power_cap": Kind(4, CLOCKS | {"gpu_compute"}),
    "power_limit_differs": Kind(6, CLOCKS | {"gpu_compute", "power_cap"}),
    "power_brake": Kind(6, CLOCKS | {"gpu_compute", "power_cap"}),
    "thermal_slowdown": Kind(6, CLOCKS | {"gpu_compute", "power_cap"}),
    "gpu_pcie_degraded": Kind(6, SLOW_NETWORK | {"gpu_compute", "data_loader"}),
    "nvlink_degraded": Kind(6, SLOW_NETWORK | {"gpu_compute"}),
    "row_remap_pending": Kind(7, frozenset(("gpu_recovery_needed",))),
    "gpu_recovery_needed": Kind(6, GONE),
    "row_remap_failed": Kind(7, GONE | LOGGED | {"gpu_recovery_needed"}),
    "ecc_uncorrected": Kind(7, GONE | LOGGED | {"gpu_recovery_needed"}),
    "fabric_unhealthy": Kind(7, SLOW_NETWORK | STUCK | {"nvlink_degraded"}),
    "gpu_unresponsive": Kind(7, GONE | LOGGED | {"device_unhealthy"}, reported_alone=True),
    "gpu_lost": Kind(8, GONE | LOGGED | GPU_STATE, reported_alone=True),
    # Links.
    "asymmetric_rail": Kind(3, SLOW_NETWORK),
    "retransmission": Kind(7, SLOW_NETWORK | STUCK | {"ib_errors", "asymmetric_rail"}),
    "congestion": Kind(8, SLOW_NETWORK | {"retransmission", "asymmetric_rail"}),
    "errors": Kind(8, SLOW_NETWORK | STUCK | {"ib_errors", "retransmission", "asymmetric_rail"}),
    "rate_below_maximum": Kind(9, SLOW_NETWORK | {"asymmetric_rail", "congestion"}),
    "pci_link_degraded": Kind(9, SLOW_NETWORK | LOSSES - {"errors"}),
    "flapping": Kind(9, SLOW_NETWORK | STUCK | TRANSPORT | LOSSES),
    "link_down": Kind(
        10, SLOW_NETWORK | LOGGED | STUCK | TRANSPORT | LOSSES | {"flapping"}, reported_alone=True
    ),
    # The kernel's log, by the cause that it names.
    "app": Kind(7, NO_RANK | STUCK | LOGGED, reported_alone=True),
    "storage": Kind(7, SLOW_INPUT | {"io_pressure", "nfs_slow", "disk_full"}),
    "host_memory": Kind(8, GONE | LOGGED | HOST_FAULTS),
    "host_kernel": Kind(7, GONE | LOGGED | HOST_FAULTS | SLOW_INPUT),
    "driver": Kind(9, GONE | LOGGED | GPU_STATE | {"gpu_lost"}, reported_alone=True),
    "gpu_hardware": Kind(10, GONE | LOGGED | GPU_STATE | {"gpu_lost"}, reported_alone=True),
    "gpu_memory": Kind(10, GONE | LOGGED | GPU_STATE | MEMORY | {"gpu_lost"}, reported_alone=True),
    "nvlink_fabric": Kind(
        10, GONE | LOGGED | GPU_STATE | SLOW_NETWORK | {"nvlink_degraded"}, reported_alone=True
    ),
    "network_nic": Kind(
        11,
        STUCK | LOGGED | TRANSPORT | SLOW_NETWORK | {"link_down", "flapping"},
        reported_alone=True,
    ),
    "pcie": Kind(
        12,
        GONE | LOGGED | GPU_STATE | SLOW_NETWORK | {"gpu_lost", "gpu_pcie_degraded"},
        reported_alone=True,
    ),
    "node_reboot": Kind(
        12, GONE | LOGGED | GPU_STATE | {"gpu_lost", "node_not_ready"}, reported_alone=True
    ),
    # What the cluster reports about nodes: why ranks ended there, never why one is slow.
    "node_notice": Kind(),
    "node_pressure": Kind(8, ENDED - {"replica_group_lost"}),
    "node_not_ready": Kind(11, ENDED | STUCK),
    "node_leaving": Kind(13, ENDED | {"node_not_ready", "node_reboot"}),
}
"""Every kind of finding.

Sources: the chains of NVIDIA's Xid catalogue (a lost GPU takes down its process and with it every
collective), the transports that NCCL falls back to when a port is down, and the order of the phases
of a step. A kind explains only shallower ones, so there are no cycles.
"""

UNKNOWN = Kind()


def kind_of(name: str) -> Kind:
    """Return the row of a kind; a kind that is not in the table explains nothing."""
    return KINDS.get(name, UNKNOWN)
