"""The series of the kernel log: pure, from counts to samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rankscope_agent.contract.metrics import kernel_log as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.kernel_log.gpus import GpuName
from rankscope_agent.sources.kernel_log.reboots import REASONS
from rankscope_agent.sources.kernel_log.tally import COUNTED, Tally

GPU_KINDS = {
    "gpu_fallen_off_bus": metrics.GPU_FALLEN,
    "gpu_init_failure": metrics.GPU_INIT_FAILURES,
}

NO_NAME = GpuName("", "")


def samples(tally: Tally, gpus: Mapping[str, GpuName]) -> Iterator[Sample]:
    """Yield the counts; GPUs that the driver no longer lists keep only their address."""
    yield from _gpu_samples(tally, gpus)
    for key, count in tally.sxids.items():
        yield Sample(metrics.SXID_ERRORS, key, count)
    for key, seconds in tally.sxid_times.items():
        yield Sample(metrics.SXID_LAST, key, seconds)
    for kind in COUNTED:
        yield Sample(metrics.KERNEL_EVENTS, (kind,), tally.kinds[kind,])
    for key, seconds in tally.kind_times.items():
        yield Sample(metrics.KERNEL_LAST_EVENT, key, seconds)
    for key, seconds in tally.pod_times.items():
        yield Sample(metrics.POD_LAST_EVENT, key, seconds)
    for metric, counts in (
        (metrics.PCIE_ERRORS, tally.pcie),
        (metrics.NIC_TIMEOUTS, tally.adapters),
        (metrics.DISK_ERRORS, tally.disks),
        (metrics.KERNEL_OOM_KILLS, tally.ooms),
    ):
        for key, count in counts.items():
            yield Sample(metric, key, count)
    for reason in REASONS:
        yield metrics.REBOOTS.sample(tally.reboots[reason,], reason=reason)
    for key, seconds in tally.reboot_times.items():
        yield Sample(metrics.BOOT_TIME, key, seconds)
    yield metrics.RECORDS_LOST.sample(tally.lost)


def _gpu_samples(tally: Tally, gpus: Mapping[str, GpuName]) -> Iterator[Sample]:
    for (pci, *code), count in tally.xids.items():
        name = gpus.get(pci, NO_NAME)
        yield Sample(metrics.XID_ERRORS, (name.gpu, name.uuid, pci, *code), count)
    for (pci, *code), seconds in tally.xid_times.items():
        name = gpus.get(pci, NO_NAME)
        yield Sample(metrics.XID_LAST, (name.gpu, name.uuid, pci, *code), seconds)
    for pci in sorted(gpus.keys() | {pci for pci, _ in tally.gpus}):
        name = gpus.get(pci, NO_NAME)
        for kind, metric in GPU_KINDS.items():
            yield Sample(metric, (name.gpu, name.uuid, pci), tally.gpus[pci, kind])
