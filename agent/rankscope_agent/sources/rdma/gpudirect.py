"""Whether RDMA adapters can access the memory of NVIDIA GPUs, by what the kernel has loaded.

Nothing is opened and no call is tried: whether NCCL uses it is shown by NCCL's log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.kernel_files import read_text, resolved

PEER_MEMORY = (
    "kernel/mm/memory_peers/nv_mem/version",
    "kernel/mm/memory_peers/nv_mem_nc/version",
    "module/nvidia_peermem/version",
)
"""Any of these is sufficient for NCCL (src/transport/net_ib/gdr.cc): the last is today's module,
the others are remnants of earlier ones under MLNX_OFED's."""

DMA_BUF_KERNEL = (5, 12)
"""RDMA accepts DMA-BUF memory from Linux 5.12 on (ib_umem_dmabuf_get)."""

PROPRIETARY = "P"
"""One of a module's taints (Documentation/ABI/testing/sysfs-module): NVIDIA's open module exports
memory as DMA-BUF, the proprietary one does not."""

OWN_WAY = "efa"
"""This driver accesses GPUs by itself, without either."""


def samples(sysfs: Path, kernel_release: str) -> Iterator[Sample]:
    """Yield the available ways; nothing without an NVIDIA driver or without suitable adapters.

    Args:
        sysfs: the node's.
        kernel_release: as returned by uname.
    """
    driver = sysfs / "module" / "nvidia"
    if not driver.is_dir() or not _takes_either(sysfs / "class" / "infiniband"):
        return
    loaded = any(read_text(sysfs / name) for name in PEER_MEMORY)
    yield Sample(metrics.GPUDIRECT, ("peer_memory",), loaded)
    try:
        taint = (driver / "taint").read_text(encoding="ascii")
    except (OSError, ValueError):
        return  # which of the two modules it is stays unknown
    open_module = PROPRIETARY not in taint
    yield Sample(metrics.GPUDIRECT, ("dma_buf",), open_module and _takes_dma_buf(kernel_release))


def _takes_either(devices: Path) -> bool:
    try:
        found = [resolved(device / "device" / "driver") for device in devices.iterdir()]
    except OSError:
        return False
    return any(driver is None or driver.name != OWN_WAY for driver in found)


def _takes_dma_buf(release: str) -> bool:
    match = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    return match is not None and (int(match[1]), int(match[2])) >= DMA_BUF_KERNEL
