"""For each alert the series that bring it about, those that just do not, and those of a good day.

Rates are per minute. The values beside a limit stand on both of its sides, close to it.
"""

from __future__ import annotations

from dataclasses import replace

from alert_timelines import Case, Series, born, counter, event, gauge, heartbeat, steady

FOREIGN = {
    "kube_node_info",
    "kube_node_status_allocatable",
    "kube_node_spec_unschedulable",
    "kube_node_annotations",
    "kube_pod_status_unschedulable",
    "kube_pod_container_resource_requests",
}
"""Series of kube-state-metrics that alerts may read."""

JOB = 'job_id="team/llm"'
NODE = 'node="gpu-07"'
OTHER = 'node="gpu-08"'
DEVICE = f'{NODE},gpu="5",uuid="GPU-3f2a",pci="0000:3b:00"'
PORT = f'{NODE},device="mlx5_3",port="1"'
LEASE = 'lease="rankscope/rankscope-watch"'
LOG_POD = f'{NODE},pod_namespace="team",pod_name="llm-0"'

OWNER = steady(
    f'rankscope_job_info{{{NODE},{JOB},class="production",owner="ada",team="nlp",project="llm"}}'
)
POD = steady(
    f'rankscope_pod_job_info{{{NODE},{JOB},pod_uid="p-1",pod_namespace="team",pod_name="llm-0"}}'
)
HOLDER = steady(
    f'rankscope_gpu_allocation_info{{{NODE},{JOB},rank="13",gpu="5",uuid="GPU-3f2a",'
    'pod_namespace="team",pod_name="llm-0"}'
)
JOB_KNOWN = (OWNER, POD, HOLDER)


Values3 = tuple[float, float, float]


def _gpu(name: str, more: str = "") -> str:
    return f"{name}{{{DEVICE}{',' if more else ''}{more}}}"


def _condition(name: str, other: str, lag: int = 0) -> Case:
    """A condition that comes and goes, appearing when it is first seen; below, another one."""
    return Case(
        (
            gauge(_gpu("rankscope_gpu_condition_active", f'condition="{name}"'), 1, 0, 0),
            gauge(_gpu("rankscope_gpu_condition_active", f'condition="{other}"'), None, None, 1),
            HOLDER,
        ),
        lag=lag,
    )


def _amiss(condition: str, count: float, reason: str = "") -> Case:
    """What is amiss with the NCCL of a pod; below, something else is."""
    keys = f'{LOG_POD},{JOB},reason="{reason}"'
    return Case(
        (
            gauge(f'rankscope_pod_condition{{{keys},condition="{condition}"}}', count, None, None),
            gauge(f'rankscope_pod_condition{{{keys},condition="other"}}', None, None, 1),
            *JOB_KNOWN,
        )
    )


AGENTS = steady(f'rankscope_build_info{{{NODE},version="1"}}')
"""Rules about what is new know from it since when anybody looks."""


def _finding(kind: str, symptom: str = "", lost: float | None = None) -> Case:
    """A finding that comes and goes; below, one of another kind, or one that costs too little."""
    keys = f'{JOB},kind="{kind}"'
    other = f'{JOB},kind="something_else"'
    whom = (
        f'symptom="{symptom}",rank="13",{NODE},gpu="5",uuid="GPU-3f2a",device="",'
        'runbook="docs/runbooks/RankscopeOfTheCause.md"'
    )
    costly = lost is not None
    series = (
        gauge(
            f'rankscope_finding_active{{{keys},severity="page"}}', 1, None, 1 if costly else None
        ),
        gauge(f"rankscope_finding_culprit_info{{{keys},{whom}}}", 1, None, 1 if costly else None),
        gauge(f'rankscope_finding_active{{{other},severity="page"}}', None, None, 1),
        gauge(f"rankscope_finding_culprit_info{{{other},{whom}}}", None, None, 1),
        counter(f'rankscope_job_lost_gpu_seconds_total{{{JOB},cause="{kind}"}}', 360),
    )
    if costly:
        series += (gauge(f"rankscope_finding_lost_fraction{{{keys}}}", lost, None, 0.049),)
    return Case((*series, steady("rankscope_watch_last_evaluation_timestamp_seconds"), OWNER))


def _utilization(bad: float, good: float, below: float) -> tuple[Series, ...]:
    return (
        gauge(f"rankscope_job_busy_gpus{{{NODE},{JOB}}}", 8 * bad, 8 * good, 8 * below),
        steady(f"rankscope_job_gpus{{{NODE},{JOB}}}", 8),
        OWNER,
    )


def _pods(pending: tuple[float, ...], running: tuple[float, ...]) -> tuple[Series, ...]:
    return (
        gauge(f'rankscope_job_pods{{{NODE},{JOB},phase="Pending"}}', *pending),
        gauge(f'rankscope_job_pods{{{OTHER},{JOB},phase="Running"}}', *running),
        OWNER,
        AGENTS,
    )


def _burn(lost: float, good: float, below: float, case: Case) -> Case:
    series = (
        counter(
            f'rankscope_job_lost_gpu_seconds_total{{{JOB},cause="gpu_lost"}}', lost, good, below
        ),
        counter(f"rankscope_job_observed_gpu_seconds_total{{{JOB}}}", 600, 600, 600),
    )
    return replace(case, series=series)


def _steps(selector: str = "_count") -> str:
    return f"rankscope_step_latency_seconds{selector}{{{NODE},{JOB}}}"


def _buckets(fast: tuple[float, float, float], slow: tuple[float, float, float]):
    """Steps of up to 1 s, and more that take up to 4 s."""
    total = tuple(a + b for a, b in zip(fast, slow, strict=True))
    bucket = f"rankscope_step_latency_seconds_bucket{{{NODE},{JOB},le="
    return (
        counter(f'{bucket}"0.5"}}', 0),
        counter(f'{bucket}"1"}}', *fast),
        counter(f'{bucket}"4"}}', *total),
        counter(f'{bucket}"+Inf"}}', *total),
    )


ALIVE = steady(f"rankscope_job_ranks_alive{{{NODE},{JOB}}}", 8)


def _busy(rank: str, node: str, slowest: Values3, median: Values3) -> tuple[Series, ...]:
    """What the agent of a node says of its ranks of a stage, when bad, good, and just not bad."""
    keys = f'{JOB},pp_stage="0",{node}'
    return (
        gauge(f"rankscope_stage_busy_seconds{{{keys}}}", *median),
        gauge(f'rankscope_stage_busiest_rank_seconds{{{keys},rank="{rank}"}}', *slowest),
    )


_FINE = (1.0, 1.0, 1.0)
_PEERS = tuple(
    one
    for i in range(3)
    for one in _busy(f"{i * 8}", f'node="gpu-1{i}"', (1.05, 1.05, 1.05), _FINE)
)
LOGGED_THROUGHPUT = Case(
    (
        gauge(
            f'rankscope_job_log_samples_per_second{{{LOG_POD},framework="megatron",'
            'source="stdout"}',
            *(50, 100, 65),
        ),
        OWNER,
        POD,
    ),
    lag=330,
    linger=1450,
    settle=1450,
    step=4,
    gap=20,
    again=10,
)
"""A job without probes whose throughput is known from what it prints."""

LOST_AT_RESTART = Case(
    (gauge(f'rankscope_collector_success{{{NODE},collector="nvml"}}', 0, 1, 1),), settle=440
)
"""A GPU driver that does not come up with the node, so that the agent does not miss it."""

NVLINK_XIDS = tuple(
    Case((event(_gpu(name, xid)),), lag=10, has_below=False)
    for name, xid in (
        ("rankscope_gpu_xid_last_timestamp_seconds", 'xid="149",severity="fatal"'),
        ("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="74"'),
    )
)
"""NVLinks that are known to be broken from what the driver reports, while all of them are up."""

UNWATCHED_STRAGGLER = Case((*_busy("13", NODE, (1.6, 1.05, 1.2), _FINE), *_PEERS, OWNER))
"""The same alert without a watch."""

UNWATCHED_NODE = Case((*_busy("13", NODE, (1.6, 1.05, 1.2), (1.58, 1.0, 1.19)), *_PEERS, OWNER))
"""Likewise when all ranks of one node of four are slow."""

UNWATCHED_PAIR = Case((*_busy("8", NODE, (1.55, 1.05, 1.5), (1.55, 1.0, 1.5)), *_PEERS[:2], OWNER))
"""Likewise for a single rank beside one node: the median lies between the two, so it takes more."""


def _cascade() -> Case:
    """Three jobs of six fail; below, two."""
    series = [
        gauge(f'rankscope_job_pods{{{NODE},job_id="team/j{i}",phase="Failed"}}', 1, 0, int(i < 2))
        for i in range(3)
    ]
    running = [
        steady(f'rankscope_job_pods{{{NODE},job_id="team/r{i}",phase="Running"}}', 4)
        for i in range(6)
    ]
    return Case((*series, *running, AGENTS), linger=15, settle=20, gap=1)


CASES: dict[str, Case] = {
    # Stragglers and their like.
    "RankscopeStraggler": _finding("thermal_slowdown", "gpu_compute", 0.37),
    "RankscopeStragglerData": _finding("data_loader", "data_loader", 0.051),
    "RankscopeSlowNetworkGroup": _finding("network_link", "network_link", 0.051),
    "RankscopeGlobalSlowdown": _finding("global_slowdown", "global_slowdown", 0.051),
    "RankscopeUnevenWork": _finding("partition_imbalance", "partition_imbalance", 0.051),
    "RankscopeSlowStorage": _finding("storage_checkpoint", "storage_checkpoint", 0.051),
    "RankscopeHostStalls": _finding("host_transient", "host_transient", 0.051),
    # Jobs that stand.
    "RankscopeJobStalled": Case(
        (counter(_steps(), 0, 12, 1), ALIVE, OWNER), lag=11, settle=20, gap=2
    ),
    "RankscopePodFailed": Case(
        (gauge(f'rankscope_job_pods{{{NODE},{JOB},phase="Failed"}}', 3, 1, 1), OWNER, AGENTS),
        linger=15,
        settle=60,
        gap=5,
    ),
    "RankscopeJobPending": Case(_pods((2, 0, 2), (0, 2, 1))),
    "RankscopeGangPartial": Case(_pods((1, 0, 1), (3, 4, 0))),
    "RankscopeElasticJobDegraded": Case(
        (gauge(f"rankscope_job_world_size{{{NODE},{JOB}}}", 448, 512, 512), ALIVE, OWNER)
    ),
    # How well jobs do.
    "RankscopeThroughputDegraded24h": Case(
        (
            counter(f"rankscope_job_samples_total{{{NODE},{JOB}}}", 5, 10, 6.5),
            ALIVE,
            OWNER,
        ),
        lag=330,
        linger=1450,
        settle=1450,
        step=4,
        gap=20,
        again=10,
    ),
    "RankscopeStepTailSlow": Case((*_buckets((90, 99, 96), (10, 1, 4)), OWNER), lag=6, settle=15),
    "RankscopeSyncShareHigh": Case(
        (
            counter(f"rankscope_sync_time_seconds_sum{{{NODE},{JOB}}}", 31, 6, 29),
            counter(_steps("_sum"), 60, 60, 60),
            OWNER,
        ),
        lag=6,
    ),
    "RankscopeLowGpuUtilisation": Case(
        _utilization(0.2, 0.9, 0.31),
        lag=61,
        settle=70,
    ),
    "RankscopeGpusIdle": Case(
        _utilization(0.0, 0.9, 0.021),
        lag=61,
        settle=70,
    ),
    "RankscopeNonFiniteLoss": Case(
        (
            counter(
                f"rankscope_job_log_nonfinite_losses_total{{{LOG_POD},"
                'framework="megatron",source="stdout"}',
                1,
            ),
            *JOB_KNOWN,
        ),
        lag=15,
    ),
    "RankscopeLossDiverging": Case(
        (
            gauge(
                f'rankscope_job_log_loss{{{LOG_POD},framework="megatron",source="stdout"}}',
                4.1,
                2.0,
                3.9,
            ),
            *JOB_KNOWN,
        )
    ),
    # NCCL.
    "RankscopeSocketFallback": _amiss("socket_fallback", 1, "plugin_failed"),
    "RankscopeNcclGdrMissing": _amiss("gdr_missing", 8),
    "RankscopeNcclInitIncomplete": _amiss("ranks_waiting", 1),
    "RankscopeNcclIbErrors": Case(
        (
            born(f'rankscope_nccl_ib_errors_total{{{LOG_POD},device="mlx5_3",status="12"}}'),
            *JOB_KNOWN,
        ),
        linger=15,
        gap=5,
    ),
    "RankscopeNcclCollectiveTimeout": Case(
        (
            born(f'rankscope_nccl_collective_timeouts_total{{{LOG_POD},op="ALLREDUCE"}}'),
            *JOB_KNOWN,
        ),
        linger=15,
        gap=5,
    ),
    "RankscopeNcclIntraNodeDegraded": _amiss("shared_memory", 16),
    "RankscopeNcclRanksDiffer": Case(
        (
            steady(f'rankscope_job_nccl_info{{{NODE},{JOB},version="2.27.3"}}'),
            gauge(f'rankscope_job_nccl_info{{{OTHER},{JOB},version="2.21.5"}}', 1, None),
            gauge(f'rankscope_job_nccl_info{{{OTHER},{JOB},version="2.27.3"}}', None, 1, 1),
            OWNER,
        )
    ),
    "RankscopeEnvironmentDiffers": Case(
        (
            steady(f'rankscope_job_environment_info{{{NODE},{JOB},hash="a"}}'),
            gauge(f'rankscope_job_environment_info{{{OTHER},{JOB},hash="b"}}', 1, None),
            gauge(f'rankscope_job_environment_info{{{OTHER},{JOB},hash="a"}}', None, 1, 1),
            OWNER,
        )
    ),
    "RankscopeMissingRank": _finding("missing_rank"),
    # GPUs.
    "RankscopeXidFatal": Case(
        (
            event(_gpu("rankscope_gpu_xid_last_timestamp_seconds", 'xid="79",severity="fatal"')),
            event(_gpu("rankscope_gpu_xid_last_timestamp_seconds", 'xid="13",severity="error"')),
            event(_gpu("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="79"')),
            event(_gpu("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="43"')),
            HOLDER,
        ),
        lag=10,
    ),
    "RankscopeGpuLost": _condition("lost", "row_remap_pending"),
    "RankscopeGpuMemoryError": Case(
        (gauge(_gpu("rankscope_gpu_recent_uncorrected_errors"), 1, None, None), HOLDER)
    ),
    "RankscopeGpuRowRemapPending": _condition("row_remap_pending", "row_remap_failure"),
    "RankscopeGpuRowRemapFailed": _condition("row_remap_failure", "row_remap_pending"),
    "RankscopeGpuThermalSlowdown": _condition("thermal_slowdown", "power_brake", lag=5),
    "RankscopeGpuPowerLimited": Case(
        (
            gauge(_gpu("rankscope_gpu_power_limit_reduced_ratio"), 5 / 7, None, 0.957),
            HOLDER,
        )
    ),
    "RankscopeGpuPcieDegraded": Case(
        (
            gauge(_gpu("rankscope_gpu_pcie_link_reduced_ratio"), 0.5, None, None),
            HOLDER,
        )
    ),
    "RankscopeNvlinkFault": Case(
        (
            gauge(_gpu("rankscope_gpu_nvlink_link_up", 'link="4"'), 0, 1, 1),
            event(_gpu("rankscope_gpu_xid_last_timestamp_seconds", 'xid="149",severity="warn"')),
            event(_gpu("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="145"')),
            HOLDER,
        )
    ),
    "RankscopeGpuClockLow": _finding("clock_low", "gpu_compute"),
    "RankscopeGpuHardwareFault": _finding("gpu_hardware"),
    "RankscopeGpuDriverFault": _finding("driver"),
    "RankscopeGpuProgramFault": _finding("app"),
    # Links.
    "RankscopeLinkFlapping": Case(
        (gauge(f"rankscope_rdma_port_recent_link_flaps{{{PORT}}}", 2, None, 1),)
    ),
    "RankscopeLinkErrors": Case(
        (gauge(f"rankscope_rdma_port_recent_errors{{{PORT}}}", 300, None, 100),)
    ),
    "RankscopeLinkRetransmission": Case(
        (gauge(f"rankscope_rdma_port_recent_retransmissions{{{PORT}}}", 300, None, 100),)
    ),
    "RankscopePfcStorm": Case(
        (gauge(f'rankscope_nic_recent_pause_ratio{{{NODE},device="eth2"}}', 0.2, None, 0.083),)
    ),
    "RankscopeLinkBelowMaximum": Case(
        (gauge(f'rankscope_pci_link_reduced_ratio{{{NODE},pci="0000:1d:00.0"}}', 0.5, None, 0.76),)
    ),
    "RankscopeAdapterUnhealthy": Case(
        (
            gauge(
                f'rankscope_adapter_unhealthy{{{NODE},pci="0000:1d:00.0",reporter="fw_fatal"}}',
                1,
                None,
            ),
        )
    ),
    "RankscopeNetworkSaturated": Case(
        (gauge(f"rankscope_rdma_port_busy_ratio{{{PORT}}}", 0.97, None, 0.94),)
    ),
    "RankscopeLinkDown": _finding("link_down"),
    "RankscopeLinkRateLow": _finding("rate_below_maximum"),
    "RankscopeLinkCongestion": _finding("congestion"),
    "RankscopeAsymmetricRail": _finding("asymmetric_rail"),
    # Hosts.
    "RankscopeNodeResourceExhausted": Case(
        (gauge(f'rankscope_node_resource_used_ratio{{{NODE},resource="disk"}}', 0.96, 0.5, 0.94),)
    ),
    "RankscopeHostHardware": Case(
        (
            event(
                f'rankscope_kernel_last_event_timestamp_seconds{{{NODE},kind="memory_uncorrected"}}'
            ),
            event(f'rankscope_kernel_last_event_timestamp_seconds{{{OTHER},kind="user_fault"}}'),
        ),
        lag=10,
    ),
    "RankscopeNodeReboot": Case(
        (
            event(f'rankscope_node_last_reboot_timestamp_seconds{{{NODE},reason="crashed"}}'),
            event(f'rankscope_node_last_reboot_timestamp_seconds{{{OTHER},reason="clean"}}'),
        ),
        lag=30,
    ),
    "RankscopeOomRepeated": Case(
        (
            gauge(f'rankscope_pod_recent_oom_kills{{{NODE},{JOB},pod_uid="p-1"}}', 2, None, 1),
            gauge(f'rankscope_pod_recent_oom_kills{{{OTHER},{JOB},pod_uid="p-2"}}', 1, None, 1),
            *JOB_KNOWN,
        )
    ),
    # The cluster, and ourselves.
    "RankscopeJobFailureCascade": _cascade(),
    "RankscopeGoodputBurnFast": _burn(570, 6, 425, Case((), lag=62, settle=380, step=1, gap=3)),
    "RankscopeGoodputBurnSlow": _burn(
        100, 6, 28, Case((), lag=24 * 60 + 30, settle=3 * 1440 + 60, step=4, gap=20, again=20)
    ),
    "RankscopeGpuPodsUnscheduled": Case(
        (
            *(
                gauge(f'kube_pod_status_unschedulable{{namespace="team",pod="llm-{i}"}}', 1, None)
                for i in range(2)
            ),
            *(
                steady(
                    f'kube_pod_container_resource_requests{{namespace="team",pod="llm-{i}",'
                    'container="main",resource="nvidia_com_gpu"}',
                    8,
                )
                for i in range(2)
            ),
            gauge('kube_pod_status_unschedulable{namespace="team",pod="web-0"}', 1, 1, 1),
        )
    ),
    "RankscopeAgentDown": Case(
        (
            gauge(f'rankscope_build_info{{{NODE},version="1"}}', None, 1, 1),
            steady(f'kube_node_status_allocatable{{{NODE},resource="nvidia_com_gpu"}}', 8),
            steady(f"kube_node_info{{{NODE}}}"),
        )
    ),
    "RankscopeCollectorFailing": Case(
        (
            gauge(f'rankscope_collector_failing{{{NODE},collector="nvml"}}', 1, None, None),
            steady(f'rankscope_collector_success{{{NODE},collector="dcgm"}}', 0),
        )
    ),
    "RankscopeSeriesBudgetExceeded": Case(
        (gauge(f"rankscope_page_series_dropped{{{NODE}}}", 120, 0, 0),)
    ),
    "RankscopeJobNameRefused": Case(
        (
            gauge(f'rankscope_job_names_rejected{{{NODE},reason="namespace"}}', 2, None, None),
            gauge(f'rankscope_training_rings_rejected{{{NODE},reason="symlink"}}', None, None, 1),
        )
    ),
    "RankscopeWatchLagging": Case(
        (heartbeat("rankscope_watch_last_evaluation_timestamp_seconds"),), lag=6
    ),
    "RankscopeWatchLeaseUnreadable": Case(
        (
            gauge(f'rankscope_watch_lease_up{{{LEASE},pod="a"}}', 0, 1, 1),
            gauge(f'rankscope_watch_lease_up{{{LEASE},pod="b"}}', 0, 1, 1),
            gauge(f'rankscope_watch_leading{{{LEASE},pod="b"}}', 0, 1, 0),
        )
    ),
    "RankscopeWatchesOverlap": Case(
        (
            gauge(f'rankscope_watch_leading{{{LEASE},pod="a"}}', 1, 0, 0),
            steady(f'rankscope_watch_leading{{{LEASE},pod="b"}}', 1),
            steady('rankscope_watch_leading{lease="other/rankscope-watch",pod="c"}', 1),
        )
    ),
    "RankscopeAnalysisErrors": Case(
        (
            counter('rankscope_watch_analysis_errors_total{part="timing"}', 2),
            gauge('rankscope_job_analysis_errors{job_id="team/llm"}', 1, 0, 0),
        ),
        lag=15,
    ),
    "RankscopeNodeMaintenance": Case((gauge(f"kube_node_spec_unschedulable{{{NODE}}}", 1, 0, 0),)),
    "RankscopeWatchdog": Case((), settle=0, has_below=False, ends=False),
}
