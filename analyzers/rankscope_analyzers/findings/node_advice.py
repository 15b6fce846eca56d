"""What to do about findings on nodes: hosts, GPUs and links."""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_agent.contract.failures import causes
from rankscope_analyzers.findings.finding import Advice

DRAIN_GPU = "Drain the node and restart the job elsewhere; reset the GPU or reboot the node."
LESS_MEMORY = "Find what fills the node's memory; lower the loaders' prefetching or move it away."

NODE_ADVICE: Mapping[str, Advice] = {
    # What the cluster reports about nodes.
    "node_leaving": Advice(
        "ticket",
        "Nothing in the job: let it start again elsewhere; kubectl describe node names who takes"
        " the node away.",
        "RankscopeJobPreempted",
        "platform",
    ),
    "node_not_ready": Advice(
        "ticket",
        "Look why the node's kubelet does not report (kubectl describe node): power, network, load;"
        " cordon the node until it does.",
        "RankscopeNodeReboot",
        "platform",
    ),
    "node_pressure": Advice(
        "ticket",
        "Free what the node is short of (kubectl describe node), or move the job: the kubelet"
        " evicts pods.",
        "RankscopeNodeResourceExhausted",
        "platform",
    ),
    "node_notice": Advice(
        "ticket",
        "Nothing now: new pods go elsewhere, and the node may be drained.",
        "RankscopeJobPreempted",
        "platform",
    ),
    # The host.
    "cpu_starved": Advice(
        "ticket",
        "Find what else runs on the rank's CPUs, and look at its pod's CPU limit; give it CPUs of"
        " its own, or start fewer threads. Its GPU is not at fault.",
        "RankscopeHostStalls",
        "platform",
    ),
    "workers_starved": Advice(
        "ticket",
        "Find what else runs on the node's CPUs, and look at the pod's CPU limit; give the rank"
        " more CPUs, or start fewer loader workers.",
        "RankscopeHostStalls",
        "platform",
    ),
    "cpu_pressure": Advice(
        "ticket",
        "Find what else runs on the node; give the job its own CPUs (static CPU manager) or more.",
        "RankscopeHostStalls",
        "platform",
    ),
    "cpu_throttled": Advice(
        "ticket",
        "Raise or remove the pod's CPU limit, or start fewer loader workers.",
        "RankscopeHostStalls",
        "ml",
    ),
    "memory_pressure": Advice("ticket", LESS_MEMORY, "RankscopeHostStalls", "platform"),
    "io_pressure": Advice(
        "ticket",
        "Find what uses the node's disks; move data set or checkpoints to a faster one.",
        "RankscopeSlowStorage",
        "platform",
    ),
    "storage_client_slow": Advice(
        "ticket",
        "Compare the node's network and client of that file system with others' (lfs check servers;"
        " dmesg for evictions and reconnects), and move the job off the node if they differ.",
        "RankscopeSlowStorage",
        "platform",
    ),
    "nfs_slow": Advice(
        "ticket",
        "Look at the file server and at the node's way to it.",
        "RankscopeSlowStorage",
        "platform",
    ),
    "disk_full": Advice(
        "page",
        "Free space or inodes on the node's own disk: old images, logs, checkpoints, caches.",
        "RankscopeNodeResourceExhausted",
        "platform",
    ),
    "pids_exhausted": Advice(
        "page",
        "Find what starts so many threads: loader workers times OMP_NUM_THREADS.",
        "RankscopeNodeResourceExhausted",
        "ml",
    ),
    "shm_full": Advice(
        "page",
        "Mount a larger emptyDir with medium Memory at /dev/shm.",
        "RankscopeSharedMemoryFull",
        "ml",
    ),
    "oom_kill": Advice("page", causes.ACTIONS[causes.HOST_OOM], "RankscopeOomRepeated", "ml"),
    "unattributed_kill": Advice(
        "ticket",
        "Find out whose process it was: rankscope explain kernel-log, kubectl describe pod.",
        "RankscopeOomRepeated",
        "platform",
    ),
    "host_memory": Advice(
        "page", "Drain the node and have its memory replaced.", "RankscopeHostHardware", "platform"
    ),
    "host_kernel": Advice(
        "page",
        "Drain the node; look at the kernel's log around it (rankscope explain kernel-log).",
        "RankscopeHostHardware",
        "platform",
    ),
    # Jobs that stand or are slow because of it have alerts of their own.
    "storage": Advice(
        "ticket",
        "Look at the disk or file server behind it; move the job's data or drain the node.",
        "RankscopeSlowStorage",
        "platform",
    ),
    "node_reboot": Advice(
        "page",
        "Look at why the node went down (pstore, BMC log) before jobs run on it again.",
        "RankscopeNodeReboot",
        "platform",
    ),
    # GPUs: clocks, power, temperature.
    "thermal_slowdown": Advice(
        "page",
        "Drain the node, then look at fans, air flow, thermal paste and coolant.",
        "RankscopeGpuThermalSlowdown",
        "platform",
    ),
    "temperature_high": Advice(
        "ticket",
        "Look at the node's fans and air flow before the clock is held down.",
        "RankscopeGpuThermalSlowdown",
        "platform",
    ),
    "power_brake": Advice(
        "page",
        "Look at the node's power supplies; drain it until they are mended.",
        "RankscopeGpuPowerLimited",
        "platform",
    ),
    "power_cap": Advice(
        "ticket",
        "Compare the power limits (nvidia-smi -q -d POWER) and the power drawn.",
        "RankscopeGpuPowerLimited",
        "platform",
    ),
    "power_limit_differs": Advice(
        "ticket",
        "Set the power limit that the job's other nodes have (nvidia-smi -pl).",
        "RankscopeGpuPowerLimited",
        "platform",
    ),
    "clock_low": Advice(
        "ticket",
        "Look for locked clocks (nvidia-smi -q -d CLOCK) and reset them (-rgc).",
        "RankscopeGpuClockLow",
        "platform",
    ),
    "power_low": Advice(
        "ticket", "Compare what runs on the GPU with its peers.", "RankscopeGpuClockLow", "platform"
    ),
    # GPUs: state, memory, links.
    "gpu_lost": Advice("page", DRAIN_GPU, "RankscopeGpuLost", "platform"),
    "gpu_unresponsive": Advice("page", DRAIN_GPU, "RankscopeGpuLost", "platform"),
    "gpu_recovery_needed": Advice(
        "page", "Drain the node and do what the driver asks for.", "RankscopeGpuLost", "platform"
    ),
    "ecc_uncorrected": Advice(
        "page",
        "Let the job end or checkpoint, drain the node, and reset the GPU.",
        "RankscopeGpuMemoryError",
        "platform",
    ),
    "row_remap_failed": Advice(
        "page",
        "Drain the node; the GPU is to be replaced.",
        "RankscopeGpuRowRemapFailed",
        "platform",
    ),
    "row_remap_pending": Advice(
        "ticket",
        "Reset the GPU at the next boundary between jobs, not in the middle of one.",
        "RankscopeGpuRowRemapPending",
        "platform",
    ),
    "fabric_unhealthy": Advice(
        "page",
        "Look at the node's fabric manager and NVLinks; drain the node if it lasts.",
        "RankscopeNvlinkFault",
        "platform",
    ),
    "nvlink_degraded": Advice("page", DRAIN_GPU, "RankscopeNvlinkFault", "platform"),
    "gpu_pcie_degraded": Advice(
        "ticket",
        "Drain the node, reseat the GPU or its riser, and look for PCIe errors.",
        "RankscopeGpuPcieDegraded",
        "platform",
    ),
    # GPU errors by the cause that the Xid catalogue gives; the action is that of the code.
    "gpu_memory": Advice(
        "page", "Drain the node and reset the GPU.", "RankscopeGpuMemoryError", "platform"
    ),
    "gpu_hardware": Advice("page", "Drain the node.", "RankscopeGpuHardwareFault", "platform"),
    "nvlink_fabric": Advice(
        "page", "Drain the node and reset the GPU.", "RankscopeNvlinkFault", "platform"
    ),
    "driver": Advice(
        "page", "Drain the node and reboot it.", "RankscopeGpuDriverFault", "platform"
    ),
    "app": Advice(
        "ticket",
        "Look at the program's last output and core dump.",
        "RankscopeGpuProgramFault",
        "ml",
    ),
    # Links.
    "link_down": Advice(
        "page",
        "Look at the port and its cable; drain the node until the link is up.",
        "RankscopeLinkDown",
        "network",
    ),
    "flapping": Advice(
        "ticket",
        "Reseat or replace the cable or transceiver; drain the node if it goes on.",
        "RankscopeLinkFlapping",
        "network",
    ),
    "errors": Advice(
        "ticket",
        "Clean, reseat or replace the cable; look at the switch's port.",
        "RankscopeLinkErrors",
        "network",
    ),
    "retransmission": Advice(
        "ticket",
        "Look for losses on this port's way: cable, switch port, PFC settings.",
        "RankscopeLinkRetransmission",
        "network",
    ),
    "congestion": Advice(
        "ticket",
        "Look at what shares the switch's uplinks, and at ECN and PFC settings.",
        "RankscopeLinkCongestion",
        "network",
    ),
    "rate_below_maximum": Advice(
        "ticket",
        "Reseat the cable; the link has come up with fewer lanes or slower.",
        "RankscopeLinkRateLow",
        "network",
    ),
    "pci_link_degraded": Advice(
        "ticket",
        "Reseat the adapter; its PCI link has come up narrower or slower.",
        "RankscopeLinkBelowMaximum",
        "platform",
    ),
    "asymmetric_rail": Advice(
        "ticket",
        "Look at the rail's leaf switch and at how ranks are spread over rails.",
        "RankscopeAsymmetricRail",
        "network",
    ),
    "network_nic": Advice(
        "page",
        "Drain the node; look at the adapter's firmware, slot and cable.",
        "RankscopeLinkErrors",
        "network",
    ),
    "pcie": Advice(
        "page",
        "Drain the node and reseat the device; look at its slot and riser.",
        "RankscopeHostHardware",
        "platform",
    ),
}
