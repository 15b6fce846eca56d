"""Series that sum up what the node's other series say: per job, and what is out of order.

Rules over a whole fleet read these: one series per job and node instead of one per rank or GPU, and
none at all for what is in order. Series of the second kind appear once there is something to tell.
"""

from __future__ import annotations

from rankscope_agent.contract.metrics.gpus import GPU
from rankscope_agent.contract.metrics.rdma import PORT
from rankscope_agent.contract.model import Metric

POD_JOB_INFO = Metric(
    "rankscope_pod_job_info",
    "gauge",
    "Always 1; which job a pod of this node belongs to.",
    ("job_id", "pod_uid", "pod_namespace", "pod_name"),
)
POD_RECENT_OOM_KILLS = Metric(
    "rankscope_pod_recent_oom_kills",
    "gauge",
    "Processes of a pod killed in the last hour for want of memory; only where there were any.",
    ("job_id", "pod_uid"),
)
JOB_RANKS_ALIVE = Metric(
    "rankscope_job_ranks_alive",
    "gauge",
    "Ranks of the job on this node whose processes live.",
    ("job_id",),
)
JOB_WORLD_SIZE = Metric(
    "rankscope_job_world_size",
    "gauge",
    "Ranks that the job has on all nodes, by what its live ranks on this node were told.",
    ("job_id",),
)
STAGE_BUSY = Metric(
    "rankscope_stage_busy_seconds",
    "gauge",
    "Data wait and compute of a newest step, the median of the stage's live ranks on this node.",
    ("job_id", "pp_stage"),
)
STAGE_BUSIEST = Metric(
    "rankscope_stage_busiest_rank_seconds",
    "gauge",
    "Data wait and compute of a newest step, of the rank of the stage that needed most here.",
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
    "The utilisation of these, added up: how many GPUs would do the same if they never rested.",
    ("job_id",),
)
JOB_ENVIRONMENT_INFO = Metric(
    "rankscope_job_environment_info",
    "gauge",
    "Always 1; what ranks of the job on this node have for transport variables, as a hash.",
    ("job_id", "hash"),
)
POD_CONDITION = Metric(
    "rankscope_pod_condition",
    "gauge",
    "What is amiss with a pod's NCCL, and of how many connections or ranks; only if anything is.",
    ("job_id", "pod_namespace", "pod_name", "condition", "reason"),
)
JOB_NCCL_INFO = Metric(
    "rankscope_job_nccl_info",
    "gauge",
    "Always 1; NCCL versions that the job's pods on this node printed.",
    ("job_id", "version"),
)
NODE_RESOURCE_USED = Metric(
    "rankscope_node_resource_used_ratio",
    "gauge",
    "Used part of what pods are evicted for: memory, disk, inodes, pids; only above 80 %.",
    ("resource",),
)
GPU_CONDITION = Metric(
    "rankscope_gpu_condition_active",
    "gauge",
    "1 while a GPU is in a condition that asks for action; only those that were seen in one.",
    (*GPU, "condition"),
)
GPU_POWER_REDUCED = Metric(
    "rankscope_gpu_power_limit_reduced_ratio",
    "gauge",
    "Enforced power limit as a part of the board's default; only where it is lower.",
    GPU,
)
GPU_PCIE_REDUCED = Metric(
    "rankscope_gpu_pcie_link_reduced_ratio",
    "gauge",
    "PCIe lanes or generation, the worse, as a part of the most; only GPUs at work with less.",
    GPU,
)
GPU_RECENT_UNCORRECTED = Metric(
    "rankscope_gpu_recent_uncorrected_errors",
    "gauge",
    "Memory errors of the last 15 minutes that ECC could not correct; only where there were any.",
    GPU,
)
PORT_RECENT_ERRORS = Metric(
    "rankscope_rdma_port_recent_errors",
    "gauge",
    "Link errors of the last 15 minutes, all types; only where there were any.",
    PORT,
)
PORT_RECENT_RETRANSMISSIONS = Metric(
    "rankscope_rdma_port_recent_retransmissions",
    "gauge",
    "Packets lost or sent again in the last 15 minutes; only where there were any.",
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
    "Part of its rate that the port sent in the last five minutes; only ports above a half.",
    PORT,
)
NIC_PAUSED = Metric(
    "rankscope_nic_recent_pause_ratio",
    "gauge",
    "Part of the last five minutes in which the worst priority was paused; only above 1 %.",
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
    "Bandwidth of an adapter's PCI link as a part of the largest it could have; only below 1.",
    ("pci",),
)
