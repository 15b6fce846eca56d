"""What the kernels of a job's nodes reported: GPU errors as incidents, and everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rankscope_agent.contract.kernel.xid import describe
from rankscope_agent.contract.metrics import gpu, kernel
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence
from rankscope_analyzers.findings.signals import Signal, Where
from rankscope_analyzers.gpus import errors as gpu_errors
from rankscope_analyzers.gpus import xid_incidents
from rankscope_analyzers.gpus.xid_incidents import XidFinding
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers.advice import Advice
from rankscope_analyzers.layers.job_view import JobView

WINDOW_SECONDS = 3600.0
"""How far back an event may lie: PyTorch's watchdogs give up after half an hour at most."""

DISK = "Look at the disk or file server behind it; move the job's data or drain the node."
KERNEL = "Drain the node; look at the kernel's log around it (rankscope explain kernel-log)."
MEMORY = "Drain the node and have its memory replaced."
ADAPTER = "Drain the node; look at the adapter's firmware, slot and cable."
CABLE = "Look at cable, transceiver and switch port."
SLOT = "Drain the node and reseat the device; look at its slot and riser."
LIMIT = "Raise the pod's memory limit or lower its use: loader workers, pinned buffers."
CORE = "Look at the program's last output and core dump."
POWER = "Look at why the node went down (pstore, BMC log) before jobs run on it again."

STORAGE = Advice("storage", "kernel", "page", DISK, "RankscopeSlowStorage")
HOST = Advice("host_kernel", "kernel", "page", KERNEL, "RankscopeHostHardware")
BAD_MEMORY = Advice("host_memory", "kernel", "page", MEMORY, "RankscopeHostHardware")
NIC = Advice("network_nic", "kernel", "page", ADAPTER, "RankscopeLinkErrors")
LINK = Advice("flapping", "kernel", "page", CABLE, "RankscopeLinkFlapping")
PCI = Advice("pcie", "kernel", "page", SLOT, "RankscopeHostHardware")
OOM = Advice("oom_kill", "kernel", "page", LIMIT, "RankscopeOomRepeated")
CRASH = Advice("app", "kernel", "ticket", CORE, "RankscopeGpuProgramFault")
REBOOT = Advice("node_reboot", "kernel", "page", POWER, "RankscopeNodeReboot")

EVENTS: Mapping[str, tuple[Advice, str]] = {
    "pcie_unrecovered": (PCI, "a driver could not recover from PCIe errors"),
    "pcie_link_down": (PCI, "a PCIe link went down"),
    "nic_command_timeout": (NIC, "an adapter's firmware does not answer"),
    "nic_firmware_fault": (NIC, "an adapter's firmware reports a fault"),
    "nic_transmit_timeout": (NIC, "an adapter stopped sending"),
    "nic_low_power": (NIC, "an adapter's slot gives too little power"),
    "nic_cable_unplugged": (LINK, "a cable was unplugged"),
    "nic_module_error": (LINK, "a cable or transceiver reports an error"),
    "link_down": (LINK, "a link went down"),
    "oom_kill": (OOM, "processes were killed for want of memory"),
    "hung_task": (HOST, "a task hangs in the kernel"),
    "soft_lockup": (HOST, "a CPU was stuck"),
    "hard_lockup": (HOST, "a CPU was stuck with interrupts off"),
    "cpu_stall": (HOST, "a CPU stalled"),
    "kernel_fault": (HOST, "a fault in the kernel"),
    "kernel_panic": (HOST, "the kernel panicked"),
    "user_fault": (CRASH, "a program crashed"),
    "memory_uncorrected": (BAD_MEMORY, "memory errors that ECC could not correct"),
    "machine_check": (BAD_MEMORY, "machine checks"),
    "disk_error": (STORAGE, "reads or writes of a disk fail"),
    "filesystem_error": (STORAGE, "a file system is damaged or fails"),
    "nvme_timeout": (STORAGE, "commands to an NVMe disk time out"),
    "nvme_lost": (STORAGE, "an NVMe disk was lost"),
    "network_storage_silent": (STORAGE, "a file server does not answer"),
}
"""Kinds of events that can hurt a job; what is harmless or corrected is left out."""

ACTIONS: Mapping[str, str] = {
    "none": "Nothing needs to be done to the node.",
    "investigate": "Look at the node's kernel log (rankscope explain kernel-log).",
    "contact_vendor": "Drain the node and open a case with the vendor.",
    "restart_app": "Restart the job; if it comes again on this GPU only, drain the node.",
    "check_cable": "Check cables and power of the GPU.",
    "reset_gpu": "Drain the node and reset the GPU.",
    "reboot_node": "Drain the node and reboot it.",
    "drain": "Drain the node.",
}

READS: tuple[Metric, ...] = (
    *gpu_errors.READS,
    kernel.KERNEL_EVENTS,
    kernel.KERNEL_LOG_INFO,
    kernel.BOOT_TIME,
    gpu.GPU_XIDS,
    gpu.GPU_XID_TIMESTAMP,
)


def signals(observed: Observed, job: JobView) -> Iterator[Signal]:
    """Yield what the kernel says of the job's GPUs and nodes."""
    now = max((float(one.times[-1]) for one in observed.all()), default=0.0)
    since = now - WINDOW_SECONDS
    errors = gpu_errors.errors(list(_gpu_series(observed, job)), since)
    for found in xid_incidents.analyze(errors):
        where = _where(found, job)
        if where is not None:
            yield _of_xids(found, where, job)
    yield from _events(observed, job, since)


def _gpu_series(observed: Observed, job: JobView) -> Iterator[Series]:
    """Yield series of GPU errors; of nodes whose kernel log is not read, those of the driver."""
    told = observed.nodes_with((kernel.KERNEL_LOG_INFO, kernel.XID_ERRORS))
    for name in (*gpu_errors.COUNTERS, *gpu_errors.HOLDERS, *_STAMPS):
        for series in observed.named(name):
            if series.node in job.on_node:
                yield series
    for metric, stands_for in _BY_DRIVER:
        for series in observed.of(metric):
            if series.node in job.on_node and series.node not in told:
                code = series.labels.get("xid", "")
                known = describe(int(code)) if code.isdigit() and len(code) < 7 else None
                meaning = (known.severity, known.action) if known else ("warn", "investigate")
                labels = {**series.labels, "severity": meaning[0], "action": meaning[1]}
                yield replace(series, name=stands_for.name, labels=labels)


_STAMPS = tuple(dict.fromkeys(metric.name for metric, _ in gpu_errors.COUNTERS.values()))
_BY_DRIVER = ((gpu.GPU_XIDS, kernel.XID_ERRORS), (gpu.GPU_XID_TIMESTAMP, kernel.XID_LAST))


def _where(found: XidFinding, job: JobView) -> Where | None:
    place = found.where
    if place.gpu or place.uuid:
        return job.of_gpus(place.node, (place.uuid,), (place.gpu,))
    return Where(nodes=(place.node,)) if place.node in job.on_node else None


def _of_xids(found: XidFinding, where: Where, job: JobView) -> Signal:
    runbook = found.runbook.rpartition("/")[2].removesuffix(".md")
    action = ACTIONS.get(found.action, ACTIONS["investigate"])
    advice = Advice(found.kind, "kernel", found.severity, action, runbook)
    begun = found.since_unix_seconds
    return advice.signal(job.job_id, where, found.summary, found.evidence, begun)


def _events(observed: Observed, job: JobView, since: float) -> Iterator[Signal]:
    for series in observed.of(kernel.KERNEL_LAST_EVENT):
        where = job.of_node(series)
        known = EVENTS.get(series.labels.get("kind", ""))
        if where and known and series.last >= since:
            advice, what = known
            said = f"the kernel of node {series.node} reports: {what}"
            evidence = Evidence(series.name, series.last, 0.0, "unix seconds", what)
            yield advice.signal(job.job_id, where, said, (evidence,), series.last)
    for series in observed.of(kernel.BOOT_TIME):
        where = job.of_node(series)
        if where and series.last >= since:
            reason = series.labels.get("reason", "unknown")
            said = f"node {series.node} was rebooted (how it went down: {reason})"
            evidence = Evidence(series.name, series.last, 0.0, "unix seconds", said)
            yield REBOOT.signal(job.job_id, where, said, (evidence,), series.last)
