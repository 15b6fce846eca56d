"""Series that summarise the node's other series: per job, and per problem.

Rules over a whole fleet read these: one series per job and node instead of one per rank or GPU, and
none for what is in order. Series of the second kind appear only when there is a problem.
"""

from __future__ import annotations

from rankscope_agent.contract.metrics.gpus import GPU
from rankscope_agent.contract.metrics.rdma import PORT
from rankscope_agent.contract.model import Metric

POD_JOB_INFO = Metric(
    "rankscope_pod_job_info",
    "gauge",
    "Always 1; the job that a pod of this node belongs to.",
    ("job_id", "pod_uid", "pod_namespace", "pod_name"),
)
POD_RECENT_OOM_KILLS = Metric(
    "rankscope_pod_recent_oom_kills",
    "gauge",
    "Processes of a pod killed for lack of memory in the last hour; only where there were any."
    " Both labels are empty for those outside of pods, on nodes with ranks outside of pods.",
    ("job_id", "pod_uid"),
)
JOB_RANKS_ALIVE = Metric(
    "rankscope_job_ranks_alive",
    "gauge",
    "Ranks of the job on this node whose processes are alive.",
    ("job_id",),
)
JOB_WORLD_SIZE = Metric(
    "rankscope_job_world_size",
    "gauge",
    "Ranks of the job on all nodes, as reported by its live ranks on this node.",
    ("job_id",),
)
STAGE_BUSY = Metric(
    "rankscope_stage_busy_seconds",
    "gauge",
    "Data wait and compute time of the newest step: the median of the stage's live ranks on"
    " this node.",
    ("job_id", "pp_stage"),
)
STAGE_BUSIEST = Metric(
    "rankscope_stage_busiest_rank_seconds",
    "gauge",
    "Data wait and compute time of the newest step: the rank of the stage that took longest on"
    " this node.",
    ("job_id", "rank", "pp_stage"),
)
JOB_GPUS = Metric(
    "rankscope_job_gpus",
    "gauge",
    "GPUs of this node that the job holds and whose utilisation is known.",
    ("job_id",),
)
JOB_BUSY_GPUS = Metric(
    "rankscope_job_busy_gpus",
    "gauge",
    "Sum of the utilisation of these GPUs: how many GPUs would do the same work if they were"
    " never idle.",
    ("job_id",),
)
JOB_ENVIRONMENT_INFO = Metric(
    "rankscope_job_environment_info",
    "gauge",
    "Always 1; hash of the transport variables of the job's ranks on this node.",
    ("job_id", "hash"),
)
POD_CONDITION = Metric(
    "rankscope_pod_condition",
    "gauge",
    "A problem with the pod's NCCL, as the number of connections or ranks that have it; only"
    " while there is one.",
    ("job_id", "pod_namespace", "pod_name", "condition", "reason"),
)
JOB_NCCL_INFO = Metric(
    "rankscope_job_nccl_info",
    "gauge",
    "Always 1; NCCL versions logged by the job's pods on this node.",
    ("job_id", "version"),
)
NODE_RESOURCE_USED = Metric(
    "rankscope_node_resource_used_ratio",
    "gauge",
    "Used share of a resource whose shortage evicts pods: memory, disk, inodes, pids; only"
    " above 80 %.",
    ("resource",),
)
GPU_CONDITION = Metric(
    "rankscope_gpu_condition_active",
    "gauge",
    "1 while a GPU is in a condition that needs action; only GPUs and conditions for which that"
    " has happened.",
    (*GPU, "condition"),
)
GPU_POWER_REDUCED = Metric(
    "rankscope_gpu_power_limit_reduced_ratio",
    "gauge",
    "Enforced power limit relative to the board's default; only where it is lower.",
    GPU,
)
GPU_PCIE_REDUCED = Metric(
    "rankscope_gpu_pcie_link_reduced_ratio",
    "gauge",
    "PCIe lanes or generation, whichever is worse, relative to the maximum; only busy GPUs"
    " below it.",
    GPU,
)
GPU_RECENT_UNCORRECTED = Metric(
    "rankscope_gpu_recent_uncorrected_errors",
    "gauge",
    "Memory errors in the last 15 minutes that ECC could not correct; only where there were any.",
    GPU,
)
PORT_RECENT_ERRORS = Metric(
    "rankscope_rdma_port_recent_errors",
    "gauge",
    "Link errors of all types in the last 15 minutes; only where there were any.",
    PORT,
)
PORT_RECENT_RETRANSMISSIONS = Metric(
    "rankscope_rdma_port_recent_retransmissions",
    "gauge",
    "Packets lost or retransmitted in the last 15 minutes; only where there were any.",
    PORT,
)
PORT_RECENT_FLAPS = Metric(
    "rankscope_rdma_port_recent_link_flaps",
    "gauge",
    "Times the port left the active state in the last 30 minutes; only where it did.",
    PORT,
)
PORT_BUSY = Metric(
    "rankscope_rdma_port_busy_ratio",
    "gauge",
    "Send rate of the port over the last five minutes relative to its link rate; only above one"
    " half.",
    PORT,
)
NIC_PAUSED = Metric(
    "rankscope_nic_recent_pause_ratio",
    "gauge",
    "Share of the last five minutes in which the most affected priority was paused; only above"
    " 1 %.",
    ("device",),
)
NIC_RECENT_STORMS = Metric(
    "rankscope_nic_recent_pause_storms",
    "gauge",
    "Pause storms that the adapter counted in the last 15 minutes; only where there were any.",
    ("device",),
)
PCI_REDUCED = Metric(
    "rankscope_pci_link_reduced_ratio",
    "gauge",
    "Bandwidth of an adapter's PCI link relative to the maximum that it supports; only below 1.",
    ("pci",),
)
