"""Series about how the devices of a node are connected."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

GPU_NIC_INFO = Metric(
    "rankscope_gpu_nic_info",
    "gauge",
    "Always 1; the adapter nearest to a GPU, and its distance (PIX, PXB, PHB, NODE, SYS).",
    ("uuid", "device", "distance"),
)
