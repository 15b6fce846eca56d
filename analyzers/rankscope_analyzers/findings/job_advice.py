"""What to do about findings on jobs: their steps, ranks, pods and NCCL."""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_analyzers.findings.finding import Advice

WATCHDOG = "Look for the rank that did not arrive (rankscope explain watchdog-log LOG...)."
NEVER_STARTED = "Look for ranks that never started or cannot reach the others."
SAME_NCCL = "Give all ranks the same image, NCCL version and variables, and restart the job."

JOB_ADVICE: Mapping[str, Advice] = {
    # The timing of steps; what takes a tenth of every step pages.
    "gpu_compute": Advice(
        "ticket",
        "Compare clocks, power and temperature of that GPU with its peers; cordon the node if they"
        " differ, profile the rank if they do not.",
        "RankscopeStraggler",
        "platform",
    ),
    "data_loader": Advice(
        "ticket",
        "Check that rank's input: its storage mount, loader workers and CPU share.",
        "RankscopeStragglerData",
        "ml",
    ),
    "network_link": Advice(
        "ticket",
        "Compare port errors, retransmits, link rate and NCCL transport of these ranks with their"
        " peers, and move the job off the node whose link differs.",
        "RankscopeSlowNetworkGroup",
        "network",
    ),
    "storage_checkpoint": Advice(
        "ticket",
        "Look at the load and the health of the shared file system and its clients.",
        "RankscopeSlowStorage",
        "platform",
    ),
    "global_slowdown": Advice(
        "ticket",
        "Look for what all ranks share: power or clock caps, fabric congestion, CPU load on the"
        " nodes, a changed batch or sequence length.",
        "RankscopeGlobalSlowdown",
        "platform",
    ),
    "partition_imbalance": Advice(
        "ticket", "Rebalance the work: no hardware is at fault.", "RankscopeUnevenWork", "ml"
    ),
    "host_transient": Advice(
        "ticket",
        "Collect garbage at the same step on all ranks; look for other load on these hosts.",
        "RankscopeHostStalls",
        "platform",
    ),
    # Ranks and pods.
    "missing_rank": Advice(
        "page",
        "Look at the end of these ranks' logs: rankscope explain job-log LOG...",
        "RankscopeMissingRank",
        "ml",
    ),
    "job_ending": Advice(
        "ticket",
        "If the job was not to end: look at the end of these ranks' logs (rankscope explain"
        " job-log LOG...).",
        "RankscopeMissingRank",
        "ml",
    ),
    "replica_group_lost": Advice(
        "ticket",
        "Nothing needs to be restarted: look why the group ended (rankscope logs JOB --errors;"
        " outside Kubernetes --from DIR instead of JOB) and whether its pods have nodes.",
        "RankscopeElasticJobDegraded",
        "ml",
    ),
    "rank_ended": Advice(
        "ticket",
        "If the job was not to end: look at the end of these ranks' logs first (rankscope explain"
        " job-log LOG...); the others ended because they did.",
        "RankscopeMissingRank",
        "ml",
    ),
    "job_over": Advice(
        "ticket",
        "If the job was not to end: look at the end of its logs (rankscope explain job-log LOG...)"
        " and at what ended its processes.",
        "RankscopeMissingRank",
        "ml",
    ),
    "rank_stopped": Advice(
        "page",
        "Find who stopped the process (SIGSTOP, a debugger) and let it go on: kill -CONT PID.",
        "RankscopeMissingRank",
        "platform",
    ),
    "rank_was_stopped": Advice(
        "ticket",
        "Find who stopped the process (SIGSTOP): a job manager that suspends, a snapshot, a hand.",
        "RankscopeHostStalls",
        "platform",
    ),
    "long_pause": Advice(
        "ticket",
        "If no rank should be busy outside of steps: look at what the ranks that the others wait"
        " for are doing (py-spy dump).",
        "RankscopeHang",
        "ml",
    ),
    "hang": Advice(
        "page",
        "Keep the evidence before anyone kills the job (rankscope capture --agent URL --job JOB"
        " FILE.tar.gz; in Kubernetes --cluster), look at what the ranks that the others wait for"
        " are doing (py-spy dump), then restart.",
        "RankscopeHang",
        "ml",
    ),
    "pod_failed": Advice(
        "page",
        "Read the log of the pod that failed first: rankscope explain job-log LOG...; kubectl"
        " describe pod shows its events and exit codes.",
        "RankscopePodFailed",
        "ml",
    ),
    "attempt_failed": Advice(
        "ticket",
        "Read the end of that rank's log: rankscope logs JOB --errors (outside Kubernetes --from"
        " DIR instead of JOB).",
        "RankscopePodFailed",
        "ml",
    ),
    "pod_pending": Advice(
        "ticket",
        "Look at why the pods wait (kubectl describe pod): GPUs, quota, volumes, images.",
        "RankscopeJobPending",
        "platform",
    ),
    "crash_loop": Advice(
        "page",
        "Read the log of the run that failed: kubectl logs POD --previous; rankscope explain"
        " job-log LOG... names its cause.",
        "RankscopeCrashLoop",
        "ml",
    ),
    "image_not_pulled": Advice(
        "page",
        "Read the registry's answer in the pod's events (kubectl describe pod); correct the image's"
        " name or the pull secret.",
        "RankscopeImagePullFailing",
        "ml",
    ),
    "container_not_created": Advice(
        "page",
        "Create what the pod's events say is missing (kubectl describe pod), mostly a secret or"
        " config map in the job's namespace.",
        "RankscopeContainerNotCreated",
        "ml",
    ),
    "pod_preempted": Advice(
        "ticket",
        "Nothing in the job: it comes back when there is room; see who took its place (kubectl get"
        " events).",
        "RankscopeJobPreempted",
        "platform",
    ),
    "device_unhealthy": Advice(
        "page",
        "Drain the node and look for Xids and the GPU's state.",
        "RankscopeGpuLost",
        "platform",
    ),
    "environment_differs": Advice(
        "ticket",
        "Give all ranks of the job the same variables and restart it; rankscope doctor lists them.",
        "RankscopeEnvironmentDiffers",
        "ml",
    ),
    # NCCL.
    "socket_fallback": Advice(
        "page",
        "Give the job its RDMA devices back (resource request, NCCL_IB_HCA, image with libibverbs)"
        " and restart it.",
        "RankscopeSocketFallback",
        "network",
    ),
    "gdr_missing": Advice(
        "ticket",
        "Load nvidia-peermem (or use DMA-BUF) on these nodes and look at ACS and the IOMMU.",
        "RankscopeNcclGdrMissing",
        "platform",
    ),
    "ib_errors": Advice(
        "page",
        "Look at the port's state, cable and error counters.",
        "RankscopeNcclIbErrors",
        "network",
    ),
    "collective_timeout": Advice("page", WATCHDOG, "RankscopeNcclCollectiveTimeout", "ml"),
    "init_incomplete": Advice("page", NEVER_STARTED, "RankscopeNcclInitIncomplete", "platform"),
    "ras_missing": Advice("page", NEVER_STARTED, "RankscopeNcclInitIncomplete", "platform"),
    "ras_lag": Advice("ticket", WATCHDOG, "RankscopeNcclCollectiveTimeout", "ml"),
    "intra_node_degraded": Advice(
        "ticket",
        "Look at why P2P is off: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, ACS, container isolation.",
        "RankscopeNcclIntraNodeDegraded",
        "platform",
    ),
    "duplicate_rank": Advice(
        "page", "Start each rank of the job once.", "RankscopeNcclInitIncomplete", "ml"
    ),
    "world_size_disagrees": Advice(
        "page",
        "Restart the whole job: pods of two attempts found each other, or the launcher gave them"
        " different sizes.",
        "RankscopeNcclInitIncomplete",
        "ml",
    ),
    "network_differs": Advice("ticket", SAME_NCCL, "RankscopeNcclRanksDiffer", "ml"),
    "channels_differ": Advice("ticket", SAME_NCCL, "RankscopeNcclRanksDiffer", "ml"),
    "version_differs": Advice("ticket", SAME_NCCL, "RankscopeNcclRanksDiffer", "ml"),
}
