"""The sources of a node, one row each: collector, metrics and requirements.

Registry, catalogue, series budget, requirements, exposition and `rankscope doctor` read this table.
It names collectors without importing them; only the registry does, when it creates one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from rankscope_agent.contract.metrics import (
    flight_recorder,
    gpus,
    host,
    job_logs,
    job_starts,
    job_status,
    job_work,
    kernel_log,
    nccl_inspector,
    nccl_log,
    nccl_ras,
    netdev,
    pod_netdev,
    pods,
    rdma,
    reported,
    starvation,
    storage_clients,
    topology,
    training,
)

Shared = Literal["pods", "windows"]
"""What collectors share: knowledge about the node's pods, and the windows of collectives."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a source that may be missing on its own and is reported under its own name.

    Args:
        name: as shown by /readyz and `rankscope doctor`.
        needs: as in `Source`.
        remedy: as in `Source`.
    """

    name: str
    needs: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a node.

    Args:
        name: of its collector, in flags, variables, labels and messages.
        create: dotted name of the function that creates its collector from the settings and the
            shared objects.
        metrics: the modules that declare its series.
        importance: of its series when a page would have too many; the lowest number is kept
            longest.
        needs: what it requires of the node, and the kustomize component of daemonset/ that provides
            it.
        remedy: what to do if it is missing.
        comes_with_jobs: it may exist only while a job runs (pods: its processes, on nodes without a
            kubelet): its absence then means that the job has ended, and is not reported.
        shares: which shared object its collector uses.
        parts: parts of it that may be missing on their own.
    """

    name: str
    create: str
    metrics: tuple[ModuleType, ...]
    importance: int
    needs: str
    remedy: str
    comes_with_jobs: bool = False
    shares: tuple[Shared, ...] = ()
    parts: tuple[Part, ...] = ()


# Importance: which rank holds what comes first, because everything else is joined with it; then
# what tells which rank is slow and what rules read (SUMMARY_IMPORTANCE), then causes, and mere
# descriptions last.
SOURCES: tuple[Source, ...] = (
    Source(
        "pods",
        "rankscope_agent.sources.pods.collector.create",
        (pods, job_status),
        importance=10,
        needs="hostPath /var/lib/kubelet/pod-resources, root and a role for pods: base",
        remedy="run with a service account that may list and watch pods, and as root",
        comes_with_jobs=True,
        shares=("pods",),
        parts=(
            Part(
                "api",
                needs="a role that lists and watches pods: base",
                remedy="bind the agent's service account to a role that lists and watches pods",
            ),
            Part(
                "kubelet",
                needs="hostPath /var/lib/kubelet/pod-resources and root: base",
                remedy="mount /var/lib/kubelet/pod-resources into the agent and run it as root",
            ),
            Part(
                "processes",
                needs="hostPID, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: component tier-2",
                remedy="run with hostPID, and add CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
            ),
        ),
    ),
    Source(
        "training",
        "rankscope_agent.sources.training.collector.create",
        (training, job_starts, reported, job_work),
        importance=20,
        needs="hostPath /var/lib/kubelet/pods: component probe",
        remedy="put the probe on the job's PYTHONPATH (rankscope probe-path) and let it write to a"
        " pod volume named rankscope (component probe-injection does both), or, outside of pods,"
        " to RANKSCOPE_RING_DIR",
        comes_with_jobs=True,
        shares=("pods",),
    ),
    Source(
        "starvation",
        "rankscope_agent.sources.starvation.collector.create",
        (starvation,),
        importance=30,
        needs="hostPID beside the rings: components probe and tier-1",
        remedy="run with hostPID, so that ranks' processes are seen, beside the probe's rings",
        comes_with_jobs=True,
        shares=("pods",),
    ),
    Source(
        "flight_recorder",
        "rankscope_agent.sources.flight_recorder.collector.create",
        (flight_recorder,),
        importance=100,
        needs="hostPath /var/lib/kubelet/pods: component probe",
        remedy="nothing where the probe times waiting by itself (as on gloo); else let the job"
        " keep torch's Flight Recorder (set TORCH_NCCL_TRACE_BUFFER_SIZE=2000 up to torch 2.6;"
        " TORCH_FR_BUFFER_SIZE and RANKSCOPE_PROBE_FLIGHT not 0) and its ring directory's path"
        " below 90 characters",
        comes_with_jobs=True,
        shares=("pods", "windows"),
    ),
    Source(
        "nccl_log",
        "rankscope_agent.sources.nccl_log.collector.create",
        (nccl_log, job_logs, job_starts),
        importance=70,
        needs="hostPath /var/log/pods: base",
        remedy="set NCCL_DEBUG=INFO in the job, and say where logs are with --path.pod-logs",
        shares=("pods",),
    ),
    Source(
        "nccl_ras",
        "rankscope_agent.sources.nccl_ras.collector.create",
        (nccl_ras,),
        importance=90,
        needs="--nccl.ras-address, and for jobs on the host component host-network",
        remedy="start the agent with --nccl.ras-address and hostNetwork, and let the job keep RAS"
        " on (NCCL_RAS_ENABLE, NCCL 2.24 and newer)",
    ),
    Source(
        "nccl_inspector",
        "rankscope_agent.sources.nccl_inspector.collector.create",
        (nccl_inspector,),
        importance=130,
        needs="hostPath /var/lib/kubelet/pods: component probe",
        remedy="set NCCL_PROFILER_PLUGIN, NCCL_INSPECTOR_ENABLE=1 and NCCL_INSPECTOR_DUMP_DIR in"
        " the job (NCCL 2.28 and newer); outside of pods name that directory with"
        " --nccl.inspector-dirs",
        comes_with_jobs=True,
        shares=("pods",),
    ),
    Source(
        "rdma",
        "rankscope_agent.sources.rdma.collector.create",
        (rdma,),
        importance=80,
        needs="hostPath /sys at --path.sysfs: base",
        remedy="say where the host's /sys is (--path.sysfs)",
    ),
    Source(
        "netdev",
        "rankscope_agent.sources.netdev.collector.create",
        (netdev,),
        importance=120,
        needs="hostPath /sys at --path.sysfs: base; the node's TCP: component tier-1;"
        " ethtool: component host-network",
        remedy="say where the host's /sys is (--path.sysfs), and run with hostPID for /proc/1/net",
    ),
    Source(
        "pod_netdev",
        "rankscope_agent.sources.pod_netdev.collector.create",
        (pod_netdev,),
        importance=125,
        needs="hostPID for counters: component tier-1; kind, MTU and speed: an agent in the node's"
        " network with CAP_SYS_ADMIN and CAP_SYS_PTRACE, which no manifest here gives",
        remedy="run with hostPID, so that pods' processes and their /proc/PID/net are seen",
        comes_with_jobs=True,
        shares=("pods",),
    ),
    Source(
        "topology",
        "rankscope_agent.sources.topology.collector.create",
        (topology,),
        importance=140,
        needs="hostPath /sys at --path.sysfs: base",
        remedy="say where the host's /sys is (--path.sysfs), and give the agent the driver",
    ),
    Source(
        "nvml",
        "rankscope_agent.sources.gpus.collector_nvml.create",
        (gpus,),
        importance=50,
        needs="the driver: component nvml; without it a dcgm-exporter: component dcgm",
        remedy="give the agent the driver (runtime class nvidia, NVIDIA_VISIBLE_DEVICES=all), or"
        " point it to a dcgm-exporter",
    ),
    Source(
        "dcgm",
        "rankscope_agent.sources.gpus.collector_dcgm.create",
        (gpus,),
        importance=50,
        needs="--dcgm.url: component dcgm",
        remedy="point the agent to the node's dcgm-exporter",
    ),
    Source(
        "kernel_log",
        "rankscope_agent.sources.kernel_log.collector.create",
        (kernel_log,),
        importance=60,
        needs="CAP_SYSLOG: component tier-3; or journald's files: component journal",
        remedy="add CAP_SYSLOG, or let the agent read the journal (--path.system-logs)",
        shares=("pods",),
    ),
    Source(
        "host",
        "rankscope_agent.sources.host.collector.create",
        (host,),
        importance=110,
        needs="hostPID for pods' limits and the node's NFS: component tier-1",
        remedy="run with hostPID, so that /proc is the host's",
        shares=("pods",),
    ),
    Source(
        "storage_clients",
        "rankscope_agent.sources.storage_clients.collector.create",
        (storage_clients,),
        importance=115,
        needs="debugfs, for nodes that mount Lustre or CephFS: component storage-clients",
        remedy="nothing where no job uses Lustre or CephFS; else mount debugfs into the agent and"
        " say where (--path.debugfs)",
    ),
)
"""All sources, in the order of their series on the page."""

COMES_WITH_JOBS = frozenset(source.name for source in SOURCES if source.comes_with_jobs)
"""The sources that may go when a job ends, and are then not missed."""

SUMMARY_IMPORTANCE = 40
"""The counterpart of `importance` for the node's summary of all sources."""

BY_COLLECTOR_OR_PART: Mapping[str, Source | Part] = {
    **{source.name: source for source in SOURCES},
    **{part.name: part for source in SOURCES for part in source.parts},
}
"""Names of everything that may be present or absent: sources and their parts."""
