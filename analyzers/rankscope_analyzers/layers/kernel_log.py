"""What the kernels of a job's nodes reported: GPU errors as incidents, and other events.

What passed before a job began, or ended the program of another job, is not reported about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rankscope_agent.contract.kernel.xid import XIDS
from rankscope_agent.contract.metrics import gpus, kernel_log, pods, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.advice import CABLE_REPORTED
from rankscope_analyzers.findings.finding import Advice, Evidence, Finding, Where
from rankscope_analyzers.gpus import driver_xids, xid_incidents
from rankscope_analyzers.gpus import errors as gpu_errors
from rankscope_analyzers.gpus.xid_incidents import XidIncident
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers import host_pressure
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.later_steps import went_on
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.layers.series_findings import query_of, series_finding

WINDOW_SECONDS = 3600.0
"""How long ago an event may be: PyTorch's watchdogs give up after half an hour at most."""

SWITCH = "SXid"
"""Errors of NVSwitches, which all GPUs of a node use."""

REBOOT, CLEAN = "node_reboot", "clean"

EVENTS: Mapping[str, tuple[str, str]] = {
    "pcie_unrecovered": ("pcie", "a driver could not recover from PCIe errors"),
    "pcie_link_down": ("pcie", "a PCIe link went down"),
    "nic_command_timeout": ("network_nic", "an adapter's firmware does not answer"),
    "nic_firmware_fault": ("network_nic", "an adapter's firmware reports a fault"),
    "nic_probe_failure": ("network_nic", "an adapter's driver could not start it"),
    "software_rdma_error": ("network_nic", "software RoCE, which runs on the CPU, reports errors"),
    "gpu_probe_failure": ("pcie", "a GPU did not answer when its driver was loaded"),
    "gpu_firmware_crash": ("driver", "a GPU's system processor (GSP) crashed"),
    "gpu_firmware_no_start": ("driver", "a GPU's system processor (GSP) did not start"),
    "gpu_firmware_missing": ("driver", "a GPU's firmware file is missing"),
    "nic_transmit_timeout": ("network_nic", "an adapter stopped sending"),
    "nic_low_power": ("network_nic", "an adapter's slot gives too little power"),
    "nic_cable_unplugged": ("flapping", "a cable was unplugged"),
    "nic_module_error": ("flapping", "a cable or transceiver reports an error"),
    "link_down": ("flapping", "a link went down"),
    "hung_task": ("host_kernel", "a task hangs in the kernel"),
    "soft_lockup": ("host_kernel", "a CPU was stuck"),
    "hard_lockup": ("host_kernel", "a CPU was stuck with interrupts off"),
    "cpu_stall": ("host_kernel", "a CPU stalled"),
    "kernel_fault": ("host_kernel", "a fault in the kernel"),
    "kernel_panic": ("host_kernel", "the kernel panicked"),
    "memory_uncorrected": ("host_memory", "memory errors that ECC could not correct"),
    "machine_check": ("host_memory", "machine checks"),
    "disk_error": ("storage", "reads or writes of a disk fail"),
    "filesystem_error": ("storage", "a file system is damaged or fails"),
    "nvme_timeout": ("storage", "commands to an NVMe disk time out"),
    "nvme_lost": ("storage", "an NVMe disk was lost"),
    "network_storage_silent": ("storage", "a file server does not answer"),
}
"""Kinds of events that can affect any job of the node. Harmless or corrected ones are left out, and
those that affect the processes of one pod are the subject of `process_deaths`."""

LASTING = frozenset(
    (
        *("pcie_unrecovered", "pcie_link_down", "gpu_probe_failure"),
        *("gpu_firmware_crash", "gpu_firmware_no_start", "gpu_firmware_missing"),
        *("nic_firmware_fault", "nic_probe_failure", "nic_low_power", "nic_module_error"),
        *("kernel_fault", "memory_uncorrected", "machine_check"),
        *("disk_error", "filesystem_error", "nvme_lost"),
    )
)
"""Kinds of events that last until something is reset, replaced or repaired. Others are over, or are
reported again: those before a job began are not its own."""

COUNTED_TOO: Mapping[str, str] = {"memory_uncorrected": host_pressure.UNCORRECTED}
"""Faults that counters of the host show, too, by kind of event. A machine check may be corrected,
or be one of a CPU's own caches."""

INSTEAD: Mapping[str, Advice] = {"flapping": CABLE_REPORTED}
"""Advice on events that the kernel itself reports, if it differs from the table's."""

KINDS = frozenset(
    (REBOOT, *(kind for kind, _ in EVENTS.values()), *(known.cause for known in XIDS.values()))
)

READS: tuple[Metric, ...] = (
    *gpu_errors.READS,
    *driver_xids.READS,
    kernel_log.KERNEL_EVENTS,
    kernel_log.KERNEL_LOG_INFO,
    kernel_log.BOOT_TIME,
)


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield what the kernel reports about the job's GPUs and nodes."""
    now = max(observed.newest().values(), default=0.0)
    since = now - WINDOW_SECONDS
    reported = [
        *_gpu_faults(observed, job, since),
        *_events(observed, job, since),
        *_reboots(observed, job, since),
    ]
    began = _began(observed, job) if reported else None
    for finding, passed in reported:
        if began is None or passed is None or passed >= began:
            yield finding


_Reported = tuple[Finding, float | None]
"""A finding, and when it was over for jobs that begin later, None if it lasts."""


def _began(observed: Observed, job: JobView) -> float | None:
    """Return when a job's first process was started, made a step or was seen, None if unknown.

    What is known of a job without steps may be a further attempt, which failed as the one before.
    """
    began: list[float] = []
    if job.began_unix_seconds is not None:
        began.append(job.began_unix_seconds)
    if any(True for _ in observed.of(training.LAST_STEP_TIMESTAMP, job_id=job.job_id)):
        started = observed.of(pods.RANK_STARTED, job_id=job.job_id)
        began.extend(float(one.values.min()) for one in started)
    if not began:
        return None
    seen = observed.of(training.RANK_INFO, job_id=job.job_id)
    return min([*began, *(float(one.times[0]) for one in seen)])


def _gpu_faults(observed: Observed, job: JobView, since: float) -> Iterator[_Reported]:
    errors = gpu_errors.errors(driver_xids.merge(_gpu_series(observed, job)), since)
    incidents = xid_incidents.analyze(errors)
    steps = by_rank(observed, training.LAST_STEP_TIMESTAMP, job.job_id) if incidents else {}
    for found in incidents:
        where = _where(found, observed, job)
        if where is None:
            continue
        finding = _of_xids(found, where, job)
        if _stops_its_rank(found) and went_on(steps, where.ranks, found.ended):
            finding = replace(finding, until_unix_seconds=found.ended)
        if not _of_program(found):
            yield finding, None
        elif not found.job_ids or job.job_id in found.job_ids:
            yield finding, found.ended


def _of_program(found: XidIncident) -> bool:
    """Return True if a fault was over with the program that it hit."""
    return found.cause == "app" or found.action == "restart_app"


def _stops_its_rank(found: XidIncident) -> bool:
    """Return True if no rank makes steps on the GPU until a fault is over."""
    return _of_program(found) or (found.cause == "pcie" and found.fatality == "fatal")


def _gpu_series(observed: Observed, job: JobView) -> Iterator[Series]:
    """Yield the series that GPU errors of the job's nodes are derived from."""
    for name in dict.fromkeys(metric.name for metric in (*gpu_errors.READS, *driver_xids.READS)):
        for series in observed.named(name):
            if series.node in job.on_node:
                yield series


def _where(found: XidIncident, observed: Observed, job: JobView) -> Where | None:
    location = found.where
    if location.gpu or location.uuid:
        return job.of_gpus(location.node, (location.uuid,), (location.gpu,))
    here = job.on_node.get(location.node, ())
    if not location.pci or any(name.startswith(SWITCH) for name in found.codes):
        return Where(nodes=(location.node,)) if here else None
    addresses = _addresses(observed, location.node)
    # Whose GPU is elsewhere is out of it; what is inferred from local ranks shows nothing.
    ranks = [
        one.rank
        for one in here
        if one.by_local_rank or (addresses.get(one.uuid) or location.pci) == location.pci
    ]
    if not ranks:
        return None
    return Where(nodes=(location.node,), ranks=tuple(ranks) if len(ranks) < len(here) else ())


def _addresses(observed: Observed, node: str) -> Mapping[str, str]:
    """Return the PCI addresses of one node's GPUs, by UUID, without a look at other nodes."""
    infos = observed.by_node.get(node, {}).get(gpus.GPU_INFO.name, ())
    return {one.labels.get("uuid", ""): one.labels.get("pci", "") for one in infos}


def _of_xids(found: XidIncident, where: Where, job: JobView) -> Finding:
    return replace(
        found.finding,
        job_id=job.job_id,
        where=where,
        until_unix_seconds=None,
        source=query_of(found.finding.evidence, job.job_id, where),
    )


def _events(observed: Observed, job: JobView, since: float) -> Iterator[_Reported]:
    for series in observed.of(kernel_log.KERNEL_LAST_EVENT):
        where, event = job.of_node(series), series.labels.get("kind", "")
        if not where or event not in EVENTS or series.last < since:
            continue
        kind, what = EVENTS[event]
        sentence = f"the kernel of node {series.node} reports: {what}"
        evidence = Evidence(series.name, series.last, 0.0, "unix seconds", what)
        finding = series_finding(
            kind,
            "kernel",
            job.job_id,
            where,
            sentence,
            (evidence,),
            series.last,
            instead=INSTEAD.get(kind),
        )
        passed = None if event in LASTING else series.last
        yield replace(finding, fault=COUNTED_TOO.get(event, "")), passed


def _reboots(observed: Observed, job: JobView, since: float) -> Iterator[_Reported]:
    """Yield reboots; one that somebody meant is no reason to page, but jobs that it ended are."""
    for series in observed.of(kernel_log.BOOT_TIME):
        where = job.of_node(series)
        if where and series.last >= since:
            reason = series.labels.get("reason", "unknown")
            sentence = f"node {series.node} was rebooted (how it went down: {reason})"
            evidence = Evidence(series.name, series.last, 0.0, "unix seconds", sentence)
            finding = series_finding(
                REBOOT,
                "kernel",
                job.job_id,
                where,
                sentence,
                (evidence,),
                series.last,
                severity="ticket" if reason == CLEAN else None,
            )
            yield finding, series.last
