"""What to do about each kind of finding, and how bad it is: one table for all layers.

A finding may be worse or milder than its kind usually is, and the driver or the kernel may ask for
an action of its own; whoever makes the finding then says so. Nothing else about a kind is known
anywhere else, but for what it can be the cause of (`fusion.causality`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.kernel.vocabulary import Action
from rankscope_analyzers.findings.finding import Severity


@dataclass(frozen=True, slots=True)
class Advice:
    """What is usually the same about one kind of finding.

    Args:
        severity: how bad it is unless the finding says otherwise.
        action: what to do first, one or two sentences.
        runbook: name of the alert whose runbook says more: a file of docs/runbooks without ending.
    """

    severity: Severity
    action: str
    runbook: str


DRAIN_GPU = "Drain the node and restart the job elsewhere; reset the GPU or reboot the node."
WATCHDOG = "Look for the rank that did not arrive (rankscope explain watchdog-log LOG...)."
NEVER_STARTED = "Look for ranks that never started or cannot reach the others."
SAME_NCCL = "Give all ranks the same image, NCCL version and variables, and restart the job."
LESS_MEMORY = "Find what fills the node's memory; lower the loaders' prefetching or move it away."

ADVICE: Mapping[str, Advice] = {
    # The timing of steps; what takes a tenth of every step pages.
    "gpu_compute": Advice(
        "ticket",
        "Compare clocks, power and temperature of that GPU with its peers; cordon the node if they"
        " differ, profile the rank if they do not.",
        "RankscopeStraggler",
    ),
    "data_loader": Advice(
        "ticket",
        "Check that rank's input: its storage mount, loader workers and CPU share.",
        "RankscopeStragglerData",
    ),
    "network_link": Advice(
        "ticket",
        "Compare port errors, retransmits, link rate and NCCL transport of these ranks with their"
        " peers, and move the job off the node whose link differs.",
        "RankscopeSlowNetworkGroup",
    ),
    "storage_checkpoint": Advice(
        "ticket",
        "Look at the load and the health of the shared file system and its clients.",
        "RankscopeSlowStorage",
    ),
    "global_slowdown": Advice(
        "ticket",
        "Look for what all ranks share: power or clock caps, fabric congestion, CPU load on the"
        " nodes, a changed batch or sequence length.",
        "RankscopeGlobalSlowdown",
    ),
    "partition_imbalance": Advice(
        "ticket", "Rebalance the work: no hardware is at fault.", "RankscopeUnevenWork"
    ),
    "host_transient": Advice(
        "ticket",
        "Collect garbage at the same step on all ranks; look for other load on these hosts.",
        "RankscopeHostStalls",
    ),
    # Ranks and pods.
    "missing_rank": Advice(
        "page",
        "Look at the end of these ranks' logs: rankscope explain job-log LOG...",
        "RankscopeMissingRank",
    ),
    "rank_ended": Advice(
        "ticket",
        "If the job was not to end: look at the end of these ranks' logs first (rankscope explain"
        " job-log LOG...); the others ended because they did.",
        "RankscopeMissingRank",
    ),
    "job_over": Advice(
        "ticket",
        "If the job was not to end: look at the end of its logs (rankscope explain job-log LOG...)"
        " and at what ended its processes.",
        "RankscopeMissingRank",
    ),
    "rank_stopped": Advice(
        "page",
        "Find who stopped the process (SIGSTOP, a debugger) and let it go on: kill -CONT PID.",
        "RankscopeMissingRank",
    ),
    "rank_was_stopped": Advice(
        "ticket",
        "Find who stopped the process (SIGSTOP): a job manager that suspends, a snapshot, a hand.",
        "RankscopeHostStalls",
    ),
    "hang": Advice(
        "page",
        "Keep the evidence before anyone kills the job (rankscope diagnose --save DIR), look at"
        " what the ranks that the others wait for are doing (py-spy dump), then restart.",
        "RankscopeHang",
    ),
    "pod_failed": Advice(
        "page",
        "Read the log of the pod that failed first: rankscope explain job-log LOG...; kubectl"
        " describe pod tells its events and exit codes.",
        "RankscopePodFailed",
    ),
    "attempt_failed": Advice(
        "ticket",
        "Read the end of that rank's log: rankscope logs JOB --errors.",
        "RankscopePodFailed",
    ),
    "pod_pending": Advice(
        "ticket",
        "Look at why the pods wait (kubectl describe pod): GPUs, quota, volumes, images.",
        "RankscopeJobPending",
    ),
    "crash_loop": Advice(
        "page",
        "Read the log of the run that failed: kubectl logs POD --previous; rankscope explain"
        " job-log LOG... names its cause.",
        "RankscopeCrashLoop",
    ),
    "image_not_pulled": Advice(
        "page",
        "Read the registry's answer in the pod's events (kubectl describe pod); correct the image's"
        " name or the pull secret.",
        "RankscopeImagePullFailing",
    ),
    "container_not_created": Advice(
        "page",
        "Create what the pod's events say is missing (kubectl describe pod), mostly a secret or"
        " config map in the job's namespace.",
        "RankscopeContainerNotCreated",
    ),
    "pod_preempted": Advice(
        "ticket",
        "Nothing in the job: it comes back when there is room; see who took its place (kubectl get"
        " events).",
        "RankscopeJobPreempted",
    ),
    "device_unhealthy": Advice(
        "page", "Drain the node and look for Xids and the GPU's state.", "RankscopeGpuLost"
    ),
    "environment_differs": Advice(
        "ticket",
        "Give all ranks of the job the same variables and restart it; rankscope doctor lists them.",
        "RankscopeEnvironmentDiffers",
    ),
    # NCCL.
    "socket_fallback": Advice(
        "page",
        "Give the job its RDMA devices back (resource request, NCCL_IB_HCA, image with libibverbs)"
        " and restart it.",
        "RankscopeSocketFallback",
    ),
    "gdr_missing": Advice(
        "ticket",
        "Load nvidia-peermem (or use DMA-BUF) on these nodes and look at ACS and the IOMMU.",
        "RankscopeNcclGdrMissing",
    ),
    "ib_errors": Advice(
        "page", "Look at the port's state, cable and error counters.", "RankscopeNcclIbErrors"
    ),
    "collective_timeout": Advice("page", WATCHDOG, "RankscopeNcclCollectiveTimeout"),
    "init_incomplete": Advice("page", NEVER_STARTED, "RankscopeNcclInitIncomplete"),
    "ras_missing": Advice("page", NEVER_STARTED, "RankscopeNcclInitIncomplete"),
    "ras_lag": Advice("ticket", WATCHDOG, "RankscopeNcclCollectiveTimeout"),
    "intra_node_degraded": Advice(
        "ticket",
        "Look at why P2P is off: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, ACS, container isolation.",
        "RankscopeNcclIntraNodeDegraded",
    ),
    "duplicate_rank": Advice(
        "page", "Start each rank of the job once.", "RankscopeNcclInitIncomplete"
    ),
    "world_size_disagrees": Advice("page", SAME_NCCL, "RankscopeNcclRanksDiffer"),
    "network_differs": Advice("ticket", SAME_NCCL, "RankscopeNcclRanksDiffer"),
    "channels_differ": Advice("ticket", SAME_NCCL, "RankscopeNcclRanksDiffer"),
    "version_differs": Advice("ticket", SAME_NCCL, "RankscopeNcclRanksDiffer"),
    # The host.
    "cpu_starved": Advice(
        "ticket",
        "Find what else runs on the rank's CPUs, and look at its pod's CPU limit; give it CPUs of"
        " its own, or start fewer threads. Its GPU is not at fault.",
        "RankscopeHostStalls",
    ),
    "workers_starved": Advice(
        "ticket",
        "Find what else runs on the node's CPUs, and look at the pod's CPU limit; give the rank"
        " more CPUs, or start fewer loader workers.",
        "RankscopeHostStalls",
    ),
    "cpu_pressure": Advice(
        "ticket",
        "Find what else runs on the node; give the job its own CPUs (static CPU manager) or more.",
        "RankscopeHostStalls",
    ),
    "cpu_throttled": Advice(
        "ticket",
        "Raise or remove the pod's CPU limit, or start fewer loader workers.",
        "RankscopeHostStalls",
    ),
    "memory_pressure": Advice("ticket", LESS_MEMORY, "RankscopeHostStalls"),
    "io_pressure": Advice(
        "ticket",
        "Find what uses the node's disks; move data set or checkpoints to a faster one.",
        "RankscopeSlowStorage",
    ),
    "nfs_slow": Advice(
        "ticket", "Look at the file server and at the node's way to it.", "RankscopeSlowStorage"
    ),
    "disk_full": Advice(
        "page",
        "Free space or inodes on the node's own disk: old images, logs, checkpoints, caches.",
        "RankscopeNodeResourceExhausted",
    ),
    "pids_exhausted": Advice(
        "page",
        "Find what starts so many threads: loader workers times OMP_NUM_THREADS.",
        "RankscopeNodeResourceExhausted",
    ),
    "shm_full": Advice(
        "page",
        "Mount a larger emptyDir with medium Memory at /dev/shm.",
        "RankscopeNodeResourceExhausted",
    ),
    "oom_kill": Advice(
        "page",
        causes.ACTIONS[causes.HOST_OOM],
        "RankscopeOomRepeated",
    ),
    "unattributed_kill": Advice(
        "ticket",
        "Find out whose process it was: rankscope explain kernel-log, kubectl describe pod.",
        "RankscopeOomRepeated",
    ),
    "host_memory": Advice(
        "page", "Drain the node and have its memory replaced.", "RankscopeHostHardware"
    ),
    "host_kernel": Advice(
        "page",
        "Drain the node; look at the kernel's log around it (rankscope explain kernel-log).",
        "RankscopeHostHardware",
    ),
    "storage": Advice(
        "page",
        "Look at the disk or file server behind it; move the job's data or drain the node.",
        "RankscopeSlowStorage",
    ),
    "node_reboot": Advice(
        "page",
        "Look at why the node went down (pstore, BMC log) before jobs run on it again.",
        "RankscopeNodeReboot",
    ),
    # GPUs: clocks, power, temperature.
    "thermal_slowdown": Advice(
        "page",
        "Drain the node, then look at fans, air flow, thermal paste and coolant.",
        "RankscopeGpuThermalSlowdown",
    ),
    "temperature_high": Advice(
        "ticket",
        "Look at the node's fans and air flow before the clock is held down.",
        "RankscopeGpuThermalSlowdown",
    ),
    "power_brake": Advice(
        "page",
        "Look at the node's power supplies; drain it until they are mended.",
        "RankscopeGpuPowerLimited",
    ),
    "power_cap": Advice(
        "ticket",
        "Compare the power limits (nvidia-smi -q -d POWER) and the power drawn.",
        "RankscopeGpuPowerLimited",
    ),
    "power_limit_differs": Advice(
        "ticket",
        "Set the power limit that the job's other nodes have (nvidia-smi -pl).",
        "RankscopeGpuPowerLimited",
    ),
    "clock_low": Advice(
        "ticket",
        "Look for locked clocks (nvidia-smi -q -d CLOCK) and reset them (-rgc).",
        "RankscopeGpuClockLow",
    ),
    "power_low": Advice(
        "ticket", "Compare what runs on the GPU with its peers.", "RankscopeGpuClockLow"
    ),
    # GPUs: state, memory, links.
    "gpu_lost": Advice("page", DRAIN_GPU, "RankscopeGpuLost"),
    "gpu_unresponsive": Advice("page", DRAIN_GPU, "RankscopeGpuLost"),
    "gpu_recovery_needed": Advice(
        "page", "Drain the node and do what the driver asks for.", "RankscopeGpuLost"
    ),
    "ecc_uncorrected": Advice(
        "page",
        "Let the job end or checkpoint, drain the node, and reset the GPU.",
        "RankscopeGpuMemoryError",
    ),
    "row_remap_failed": Advice(
        "page", "Drain the node; the GPU is to be replaced.", "RankscopeGpuRowRemapFailed"
    ),
    "row_remap_pending": Advice(
        "ticket",
        "Reset the GPU at the next boundary between jobs, not in the middle of one.",
        "RankscopeGpuRowRemapPending",
    ),
    "fabric_unhealthy": Advice(
        "page",
        "Look at the node's fabric manager and NVLinks; drain the node if it lasts.",
        "RankscopeNvlinkFault",
    ),
    "nvlink_degraded": Advice("page", DRAIN_GPU, "RankscopeNvlinkFault"),
    "gpu_pcie_degraded": Advice(
        "ticket",
        "Drain the node, reseat the GPU or its riser, and look for PCIe errors.",
        "RankscopeGpuPcieDegraded",
    ),
    # GPU errors by the cause that the Xid catalogue gives; the action is that of the code.
    "gpu_memory": Advice("page", "Drain the node and reset the GPU.", "RankscopeGpuMemoryError"),
    "gpu_hardware": Advice("page", "Drain the node.", "RankscopeGpuHardwareFault"),
    "nvlink_fabric": Advice("page", "Drain the node and reset the GPU.", "RankscopeNvlinkFault"),
    "driver": Advice("page", "Drain the node and reboot it.", "RankscopeGpuDriverFault"),
    "app": Advice(
        "ticket", "Look at the program's last output and core dump.", "RankscopeGpuProgramFault"
    ),
    # Links.
    "link_down": Advice(
        "page",
        "Look at the port and its cable; drain the node until the link is up.",
        "RankscopeLinkDown",
    ),
    "flapping": Advice(
        "ticket",
        "Reseat or replace the cable or transceiver; drain the node if it goes on.",
        "RankscopeLinkFlapping",
    ),
    "errors": Advice(
        "ticket",
        "Clean, reseat or replace the cable; look at the switch's port.",
        "RankscopeLinkErrors",
    ),
    "retransmission": Advice(
        "ticket",
        "Look for losses on this port's way: cable, switch port, PFC settings.",
        "RankscopeLinkRetransmission",
    ),
    "congestion": Advice(
        "ticket",
        "Look at what shares the switch's uplinks, and at ECN and PFC settings.",
        "RankscopeLinkCongestion",
    ),
    "rate_below_maximum": Advice(
        "ticket",
        "Reseat the cable; the link has come up with fewer lanes or slower.",
        "RankscopeLinkRateLow",
    ),
    "pci_link_degraded": Advice(
        "ticket",
        "Reseat the adapter; its PCI link has come up narrower or slower.",
        "RankscopeLinkBelowMaximum",
    ),
    "asymmetric_rail": Advice(
        "ticket",
        "Look at the rail's leaf switch and at how ranks are spread over rails.",
        "RankscopeAsymmetricRail",
    ),
    "network_nic": Advice(
        "page",
        "Drain the node; look at the adapter's firmware, slot and cable.",
        "RankscopeLinkErrors",
    ),
    "pcie": Advice(
        "page",
        "Drain the node and reseat the device; look at its slot and riser.",
        "RankscopeHostHardware",
    ),
}
"""Every kind of finding."""

FROZEN_INPUT = Advice(
    "ticket",
    "Check that rank's input: its storage mount and loader workers at that time.",
    "RankscopeStragglerData",
)
"""Of a rank that waited for its input once, and for long."""

FROZEN_HOST = Advice(
    "ticket",
    "Look for what stopped the process at that time: a debugger, a snapshot or migration of the"
    " machine, a paused container, memory that was swapped out.",
    "RankscopeHostStalls",
)
"""Of a rank that stood still once, and for long."""

CODE_ACTIONS: Mapping[Action, str] = {
    "none": "Nothing needs to be done to the node.",
    "investigate": "Look at the node's kernel log (rankscope explain kernel-log).",
    "contact_vendor": "Drain the node and open a case with the vendor.",
    "restart_app": "Restart the job; if it comes again on this GPU only, drain the node.",
    "check_cable": "Check cables and power of the GPU.",
    "reset_gpu": "Drain the node and reset the GPU.",
    "reboot_node": "Drain the node and reboot it.",
    "drain": "Drain the node.",
}
"""What the action that an Xid asks for means to whoever runs the job."""

MEMORY_EXHAUSTED = Advice("page", LESS_MEMORY, "RankscopeNodeResourceExhausted")
"""Of memory pressure that is about to end in evictions."""

NVLINK_ERRORS = Advice(
    "ticket",
    "Check the NVLinks (nvidia-smi nvlink -e) and drain the node if errors go on.",
    "RankscopeNvlinkFault",
)
"""Of an NVLink that has errors and is up."""

CABLE_REPORTED = Advice(
    "page", "Look at cable, transceiver and switch port.", "RankscopeLinkFlapping"
)
"""Of a link of which the kernel itself reports a fault."""
