"""Series of a running job on two nodes of four GPUs: healthy ones, and for each fault what differs.

Unlike `faulty_clusters`, which simulates devices and agents, this writes the values straight down,
so that there is room for every fault that an analyzer knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope_agent.contract.metrics import (
    cluster_jobs,
    gpus,
    host,
    job_logs,
    job_status,
    kernel_log,
    nccl_log,
    nccl_ras,
    netdev,
    pods,
    rdma,
    reported,
    starvation,
    storage_clients,
    training,
)
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.intake.observed import Observed, Series, gathered
from rankscope_analyzers.layers.job_view import JobView, job_view

JOB = "team/job"
NODES = ("gpu-0", "gpu-1")
GPUS = 4
TIMES = 1_760_000_000.0 + np.arange(0.0, 241.0, 30.0)
NOW = float(TIMES[-1])
SECONDS = float(TIMES[-1] - TIMES[0])

PLACES = {
    rank: RankLocation(
        rank,
        NODES[rank // GPUS],
        local_rank=rank % GPUS,
        gpu=str(rank % GPUS),
        uuid=f"GPU-{rank}",
        nics=(f"mlx5_{rank % GPUS}",),
        pod=f"team/job-{rank // GPUS}",
        pod_uid=f"uid-{rank // GPUS}",
    )
    for rank in range(len(NODES) * GPUS)
}
VIEW: JobView = job_view(JOB, PLACES, float(TIMES[0]))


@dataclass(frozen=True)
class Reading:
    """A series that goes from `first` to `last`, or stays there; of node gpu-1 unless said."""

    metric: Metric
    labels: Mapping[str, str]
    last: float
    first: float | None = None
    node: str = NODES[1]

    @property
    def key(self) -> tuple[str, str, frozenset[tuple[str, str]]]:
        return self.node, self.metric.name, frozenset(self.labels.items())

    def series(self) -> Series:
        assert set(self.labels) <= set(self.metric.labels), self.metric.name
        first = self.last if self.first is None else self.first
        values = np.linspace(first, self.last, len(TIMES))
        return Series(self.node, self.metric.name, dict(self.labels), TIMES, values)


def observed(*odd: Reading) -> Observed:
    """Return what healthy nodes show, with these readings in the place of theirs."""
    readings = {reading.key: reading for reading in (*healthy(), *odd)}
    return gathered(reading.series() for reading in readings.values())


def gpu_labels(rank: int) -> dict[str, str]:
    return {"gpu": str(rank % GPUS), "uuid": f"GPU-{rank}", "pci": f"0000:{rank % GPUS}b:00"}


def healthy() -> Iterator[Reading]:
    """Yield GPUs and ports at work."""
    for rank, place in PLACES.items():
        gpu, port = gpu_labels(rank), {"device": place.nics[0], "port": "1"}
        adapter = {"device": place.nics[0], "board_id": "MT_1", "pci": gpu["pci"]}
        rows: Sequence[tuple[Metric, dict[str, str], float, float | None]] = (
            (gpus.GPU_INFO, {**gpu, "model": "H100"}, 1, None),
            (gpus.GPU_UTILIZATION, gpu, 0.97, None),
            (gpus.GPU_CLOCK, {**gpu, "domain": "sm"}, 1.98e9, None),
            (gpus.GPU_POWER, gpu, 650, None),
            (gpus.GPU_POWER_LIMIT, {**gpu, "kind": "enforced"}, 700, None),
            (gpus.GPU_TEMPERATURE, {**gpu, "sensor": "core"}, 60, None),
            (gpus.GPU_PCIE_WIDTH, gpu, 16, None),
            (gpus.GPU_PCIE_WIDTH_MAX, gpu, 16, None),
            (gpus.GPU_NVLINK_LINK_UP, {**gpu, "link": "3"}, 1, None),
            (training.RANK_ALIVE, {"job_id": JOB, "rank": str(rank)}, 1, None),
            (rdma.DEVICE_INFO, adapter, 1, None),
            (rdma.PORT_STATE, port, 4, None),
            (rdma.PORT_RATE, port, 50e9, None),
            (rdma.TRANSMIT_BYTES, port, 1e10 * SECONDS, 0),
            (rdma.RECEIVE_BYTES, port, 1e10 * SECONDS, 0),
            (rdma.LINK_FLAPS, port, 0, None),
            (rdma.PORT_ERRORS, {**port, "type": "symbol_error"}, 0, None),
            (rdma.HW_EVENTS, {**port, "event": "out_of_sequence"}, 0, None),
            (rdma.CONGESTION, {**port, "type": "cnp_handled"}, 0, None),
            (netdev.PCI_LINK_RATIO, {"pci": gpu["pci"]}, 1.0, None),
        )
        for metric, labels, last, first in rows:
            yield Reading(metric, labels, last, first, place.node)
    for node in NODES:
        for resource in ("cpu", "memory", "io"):
            labels = {"resource": resource, "kind": "some"}
            yield Reading(host.PRESSURE, labels, 0.01 * SECONDS, 0, node)


ODD = 5
"""The rank whose GPU and port are at fault, on the second node."""

GPU = gpu_labels(ODD)
PORT = {"device": "mlx5_1", "port": "1"}
LOG = {"pod_namespace": "team", "pod_name": "job-1"}
POD = {"pod_uid": "uid-1"}
SLOW = Reading(gpus.GPU_CLOCK, {**GPU, "domain": "sm"}, 1.2e9)


def held(reason: str) -> Reading:
    return Reading(gpus.GPU_CLOCK_EVENT_SECONDS, {**GPU, "reason": reason}, 0.8 * SECONDS, 0)


def xid(code: int, severity: str, action: str) -> tuple[Reading, ...]:
    labels = {**GPU, "xid": str(code), "severity": severity, "action": action}
    return (
        Reading(kernel_log.XID_ERRORS, labels, 1, 0),
        Reading(kernel_log.XID_LAST, labels, NOW - 100),
    )


def event(kind: str) -> tuple[Reading, ...]:
    return (Reading(kernel_log.KERNEL_LAST_EVENT, {"kind": kind}, NOW - 100),)


def pressure(resource: str) -> tuple[Reading, ...]:
    return (Reading(host.PRESSURE, {"resource": resource, "kind": "some"}, 0.6 * SECONDS, 0),)


def of_ranks(
    metric: Metric, value: Callable[[int], float], first: float | None = None
) -> tuple[Reading, ...]:
    """Return a reading of every rank."""
    return tuple(
        Reading(metric, {"job_id": JOB, "rank": str(rank)}, value(rank), first, place.node)
        for rank, place in PLACES.items()
    )


def starved(metric: Metric) -> tuple[Reading, ...]:
    return of_ranks(metric, lambda rank: (0.5 if rank == ODD else 0.02) * SECONDS, 0)


def ended(at: float) -> tuple[Reading, ...]:
    """Return a job that is over, whose odd rank ended at this time."""
    return (
        *of_ranks(training.RANK_ALIVE, lambda rank: 0),
        *of_ranks(training.RANK_ENDED, lambda rank: at if rank == ODD else NOW),
    )


def ended_process(kind: str, scope: str, pod_uid: str = "uid-1") -> tuple[Reading, ...]:
    labels = {"kind": kind, "scope": scope, "pod_uid": pod_uid}
    return (Reading(kernel_log.POD_LAST_EVENT, labels, NOW - 100),)


def waiting(reason: str) -> Reading:
    return Reading(job_status.JOB_WAITING_PODS, {"job_id": JOB, "reason": reason}, 2)


def last_failure(reason: str, detail: str) -> Reading:
    labels = {"job_id": JOB, "reason": reason, "detail": detail}
    return Reading(job_status.JOB_LAST_FAILURE, labels, NOW - 60)


def noticed(notice: str) -> list[Reading]:
    """Return what the watch says of a node about which there is a notice."""
    labels = {"job_id": JOB, "node": NODES[1], "notice": notice}
    return [Reading(cluster_jobs.JOB_NODE_NOTICE, labels, NOW - 60)]


def client(seconds: float, operations: float, node: str = NODES[1]) -> Sequence[Reading]:
    """Return what a node's client of Lustre counted of reads."""
    labels = {"type": "lustre", "filesystem": "scratch", "operation": "read"}
    return [
        Reading(storage_clients.OPERATIONS, labels, operations, 0, node),
        Reading(storage_clients.SECONDS, labels, seconds, 0, node),
    ]


def befell(event: str) -> Reading:
    """Return what an agent says of something that befell the odd rank five minutes ago."""
    return of_odd_rank(reported.TRAINING_EVENT, NOW - 300, event=event)


def of_odd_rank(metric: Metric, value: float, **labels: str) -> Reading:
    return Reading(metric, {"job_id": JOB, "rank": str(ODD), **labels}, value)


def restarted(**ratios: float) -> Sequence[Reading]:
    """Return what an agent says of a rank whose process began again five minutes ago."""
    said = [
        of_odd_rank(reported.RESTART_RATIO, ratio, quantity=quantity)
        for quantity, ratio in ratios.items()
    ]
    return [befell("restarted"), *said]


FAULTS: Mapping[str, Sequence[Reading]] = {
    # GPUs: state, memory, links.
    "gpu_lost": [Reading(gpus.GPU_LOST, GPU, 1)],
    "gpu_unresponsive": [Reading(gpus.GPU_UNRESPONSIVE, GPU, 1)],
    "gpu_recovery_needed": [Reading(gpus.GPU_RECOVERY_ACTION, {**GPU, "action": "reset"}, 1)],
    "ecc_uncorrected": [
        Reading(gpus.GPU_ECC_ERRORS, {**GPU, "kind": "uncorrected", "scope": "volatile"}, 2, 0)
    ],
    "row_remap_failed": [Reading(gpus.GPU_REMAP_FAILURE, GPU, 1)],
    "row_remap_pending": [Reading(gpus.GPU_REMAP_PENDING, GPU, 1)],
    "fabric_unhealthy": [Reading(gpus.GPU_FABRIC_UNHEALTHY, {**GPU, "check": "route"}, 1)],
    "nvlink_degraded": [Reading(gpus.GPU_NVLINK_LINK_UP, {**GPU, "link": "3"}, 0)],
    "gpu_pcie_degraded": [Reading(gpus.GPU_PCIE_WIDTH, GPU, 4)],
    # GPUs: clocks, power, temperature.
    "thermal_slowdown": [SLOW, held("hw_thermal_slowdown")],
    "power_brake": [SLOW, held("hw_power_brake")],
    "power_cap": [SLOW, held("sw_power_cap")],
    "clock_low": [SLOW],
    "power_low": [Reading(gpus.GPU_POWER, GPU, 300)],
    "power_limit_differs": [Reading(gpus.GPU_POWER_LIMIT, {**GPU, "kind": "enforced"}, 400)],
    "temperature_high": [Reading(gpus.GPU_TEMPERATURE, {**GPU, "sensor": "core"}, 85)],
    # The kernel's log.
    "app": xid(31, "error", "restart_app"),
    "driver": xid(119, "error", "reset_gpu"),
    "gpu_hardware": xid(46, "fatal", "reset_gpu"),
    "gpu_memory": xid(48, "fatal", "reset_gpu"),
    "nvlink_fabric": xid(74, "error", "reset_gpu"),
    "pcie": xid(79, "fatal", "reboot_node"),
    "network_nic": event("nic_firmware_fault"),
    "host_kernel": event("hung_task"),
    "host_memory": [Reading(host.EDAC_ERRORS, {"severity": "uncorrected"}, 3, 0)],
    "storage": event("disk_error"),
    "node_reboot": [Reading(kernel_log.BOOT_TIME, {"reason": "panic"}, NOW - 100)],
    "oom_kill": ended_process("oom_kill", "cgroup"),
    "unattributed_kill": ended_process("oom_kill", "cgroup", "uid-of-nobody"),
    # Links.
    "link_down": [Reading(rdma.PORT_STATE, PORT, 1)],
    "flapping": [Reading(rdma.LINK_FLAPS, PORT, 5, 0)],
    "errors": [Reading(rdma.PORT_ERRORS, {**PORT, "type": "symbol_error"}, 90_000, 0)],
    "retransmission": [Reading(rdma.HW_EVENTS, {**PORT, "event": "out_of_sequence"}, 9e5, 0)],
    "congestion": [Reading(rdma.CONGESTION, {**PORT, "type": "cnp_handled"}, 1e6, 0)],
    "rate_below_maximum": [Reading(rdma.PORT_RATE, PORT, 12.5e9)],
    "pci_link_degraded": [Reading(netdev.PCI_LINK_RATIO, {"pci": GPU["pci"]}, 0.25)],
    "asymmetric_rail": [
        Reading(rdma.TRANSMIT_BYTES, PORT, 1e9 * SECONDS, 0),
        Reading(rdma.RECEIVE_BYTES, PORT, 1e9 * SECONDS, 0),
    ],
    # NCCL.
    "socket_fallback": [
        Reading(nccl_log.NCCL_SOCKET_FALLBACK, {**LOG, "reason": "no_rdma_device"}, 1)
    ],
    "gdr_missing": [Reading(nccl_log.NCCL_GDR_MISSING, LOG, 8)],
    "ib_errors": [Reading(nccl_log.NCCL_IB_ERRORS, {**LOG, "device": "mlx5_1", "status": "12"}, 1)],
    "collective_timeout": [Reading(nccl_log.NCCL_TIMEOUTS, {**LOG, "op": "ALLREDUCE"}, 4)],
    "init_incomplete": [
        Reading(nccl_log.NCCL_RANKS_EXPECTED, LOG, 4),
        Reading(nccl_log.NCCL_RANKS_INITIALIZED, LOG, 3),
        Reading(nccl_log.NCCL_LAST_LINE, LOG, NOW - 200),
    ],
    "channels_differ": [
        Reading(nccl_log.NCCL_CHANNELS, {**LOG, "bound": "lowest"}, 8),
        Reading(nccl_log.NCCL_CHANNELS, {**LOG, "bound": "highest"}, 16),
    ],
    "ras_missing": [Reading(nccl_ras.RAS_MISSING_RANKS, {}, 1)],
    "ras_lag": [Reading(nccl_ras.RAS_LAG, {"op": "AllReduce"}, 50)],
    # The host.
    "cpu_pressure": pressure("cpu"),
    "memory_pressure": pressure("memory"),
    "io_pressure": pressure("io"),
    "cpu_throttled": [
        Reading(host.POD_PERIODS, {**POD, "kind": "all"}, 2400, 0),
        Reading(host.POD_PERIODS, {**POD, "kind": "throttled"}, 1200, 0),
    ],
    "disk_full": [Reading(host.DISK_USED, {"filesystem": "nodefs"}, 0.99)],
    "pids_exhausted": [Reading(host.PIDS_USED, {}, 0.99)],
    "shm_full": [Reading(host.SHM_SIZE, POD, 1e9), Reading(host.SHM_USED, POD, 1e9)],
    "nfs_slow": [
        Reading(host.NFS_OPERATIONS, {**POD, "operation": "READ"}, 1000, 0),
        Reading(host.NFS_ROUND_TRIP, {**POD, "operation": "READ"}, 900, 0),
    ],
    "storage_client_slow": client(10.0, 100.0),
    "cpu_starved": starved(starvation.RANK_STARVED),
    "workers_starved": starved(starvation.LOADER_STARVED),
    # Ranks, pods, environment.
    "job_ending": [
        *of_ranks(training.RANK_ALIVE, lambda rank: float(rank == ODD)),
        *of_ranks(training.RANK_ENDED, lambda rank: NOW - 60),
    ],
    "rank_ended": ended(NOW - 9),
    "job_over": ended(NOW),
    "rank_stopped": of_ranks(starvation.RANK_STOPPED, lambda rank: float(rank == ODD)),
    "rank_was_stopped": [
        Reading(starvation.RANK_LAST_STOPPED, {"job_id": JOB, "rank": str(ODD)}, NOW - 60)
    ],
    "hang": of_ranks(training.LAST_STEP_TIMESTAMP, lambda rank: NOW - 3600),
    "long_pause": [
        *of_ranks(training.LAST_STEP_TIMESTAMP, lambda rank: NOW - 900),
        *of_ranks(training.SPAN_BEGAN, lambda rank: NOW - 890),
    ],
    "replica_group_lost": [
        Reading(training.RANK_ALIVE, {"job_id": JOB, "rank": str(ODD)}, 0),
        Reading(training.JOB_REPLICA_GROUP_RANKS, {"job_id": JOB}, 2),
        *of_ranks(training.LAST_STEP_TIMESTAMP, lambda rank: NOW - 1),
    ],
    "missing_rank": [Reading(training.RANK_ALIVE, {"job_id": JOB, "rank": str(ODD)}, 0)],
    "pod_failed": [Reading(pods.JOB_PODS, {"job_id": JOB, "phase": "Failed"}, 1)],
    "pod_pending": [Reading(pods.JOB_PODS, {"job_id": JOB, "phase": "Pending"}, 1)],
    "attempt_failed": [
        Reading(
            job_logs.JOB_LOG_FAILURE,
            {"job_id": JOB, "cause": "gpu_oom", "rank": str(ODD), "own": "true"},
            NOW - 60,
        )
    ],
    "crash_loop": [waiting("CrashLoopBackOff")],
    "image_not_pulled": [waiting("Init:ImagePullBackOff")],
    "container_not_created": [waiting("CreateContainerConfigError")],
    "pod_preempted": [last_failure("DisruptionTarget", "PreemptionByScheduler")],
    "node_leaving": noticed("spot_interruption"),
    "node_not_ready": noticed("not_ready"),
    "node_pressure": noticed("memory_pressure"),
    "node_notice": noticed("cordoned"),
    "device_unhealthy": [Reading(pods.DEVICE_UNHEALTHY, {**LOG, "device_id": "GPU-5"}, 1)],
    # Checkpoints and what training says of itself.
    "checkpoint_failed": [befell("checkpoint_write_failed")],
    "checkpoint_not_loaded": [befell("checkpoint_load_failed")],
    "checkpoint_overwritten": [befell("checkpoint_path_shared")],
    "checkpoint_overdue": [
        Reading(reported.CHECKPOINT_OBJECTIVE, {}, 600),
        of_odd_rank(training.CHECKPOINT_LAST_SUCCESS, NOW - 601),
    ],
    "checkpoint_store_full": [
        of_odd_rank(reported.STORE_FREE, 49e9),
        of_odd_rank(reported.STORE_SIZE, 1e12),
    ],
    "checkpoint_share": [
        of_odd_rank(training.CHECKPOINT_BLOCKED, 500),
        of_odd_rank(training.STEP_SECONDS, 1000),
    ],
    "loss_not_finite": [befell("loss_not_finite")],
    "loss_diverging": [
        of_odd_rank(reported.LOSS_LEVEL, 4.2),
        of_odd_rank(reported.LOSS_LOWEST, 2.0),
    ],
    "loss_jump": [
        of_odd_rank(reported.LOSS_LEVEL, 3.2),
        of_odd_rank(reported.LOSS_BEFORE_RESTART, 2.0),
    ],
    "learning_rate_changed": restarted(learning_rate=0.6),
    "batch_changed": restarted(world_size=0.75, batch_samples=1.0, learning_rate=1.0),
    "loader_worker_died": [befell("loader_worker_died")],
    "cuda_out_of_memory": [befell("cuda_out_of_memory")],
    "environment_differs": [
        Reading(
            pods.RANK_ENVIRONMENT_INFO,
            {"job_id": JOB, "rank": str(rank), "hash": "b" if rank == ODD else "a"},
            1,
            node=place.node,
        )
        for rank, place in PLACES.items()
    ],
}
"""For each kind that series can show: the readings that make it come."""

BY_ANOTHER_LAYER: Mapping[str, Sequence[Reading]] = {
    "app": ended_process("user_fault", ""),
    "pod_failed": [last_failure("OOMKilled", "sigkill")],
    "flapping": event("nic_cable_unplugged"),
    "host_memory": event("memory_uncorrected"),
}
"""Other readings that make kinds of `FAULTS` come, where two layers can see the same."""
