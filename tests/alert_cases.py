"""For each alert the series that bring it about, those that just do not, and those of a good day.

Rates are per minute. The values beside a limit stand on both of its sides, close to it.
"""

from __future__ import annotations

from dataclasses import replace

from alert_accounts import recoveries, spending
from alert_checkpoint_cases import CHECKPOINT_CASES
from alert_series import (
    ALIVE,
    CLIENTS,
    HOLDER,
    JOB,
    JOB_KNOWN,
    LEASE,
    LOG_POD,
    NODE,
    OTHER,
    OWNER,
    PORT,
    RANK_THERE,
    amiss,
    and_more,
    buckets,
    burn,
    cascade,
    condition,
    failure,
    finding,
    of_gpu,
    pods_by_phase,
    steps_of,
    utilization,
    waiting,
)
from alert_timelines import Case, born, clock, counter, event, gauge, heartbeat, steady
from rankscope_dashboards.rules.alerts.canary import RIGHT

WATCH_LAST = "rankscope_watch_last_evaluation_timestamp_seconds"
STEP_LOOK = "rankscope_watch_last_step_look_timestamp_seconds"

CANARY = 'job_id="rankscope/rankscope-canary"'

CASES: dict[str, Case] = {
    # Stragglers and their like.
    "RankscopeStraggler": finding("thermal_slowdown", "gpu_compute", 0.37),
    "RankscopeStragglerData": finding("data_loader", "data_loader", 0.051),
    "RankscopeSlowNetworkGroup": finding("network_link", "network_link", 0.051),
    "RankscopeGlobalSlowdown": finding("global_slowdown", "global_slowdown", 0.051),
    "RankscopeUnevenWork": finding("partition_imbalance", "partition_imbalance", 0.051),
    "RankscopeSlowStorage": and_more(
        finding("storage_checkpoint", "storage_checkpoint", 0.051), *CLIENTS, RANK_THERE
    ),
    "RankscopeHostStalls": finding("host_transient", "host_transient", 0.051),
    # Jobs that stand.
    "RankscopeHang": finding("rank_stopped", "hang", 1.0),
    "RankscopeJobStalled": Case(
        (counter(steps_of(), 0, 12, 1), ALIVE, OWNER), lag=11, settle=20, gap=2
    ),
    **CHECKPOINT_CASES,
    "RankscopePodFailed": Case(
        (
            event(failure("OOMKilled", detail="sigkill")),
            event(failure("DisruptionTarget", detail="PreemptionByScheduler"), below=True),
            OWNER,
        ),
        linger=15,
        gap=5,
    ),
    "RankscopeCrashLoop": Case(
        (
            event(failure("OOMKilled", detail="sigkill")),
            *waiting("CrashLoopBackOff", "ImagePullBackOff"),
        )
    ),
    "RankscopeImagePullFailing": Case(waiting("Init:ImagePullBackOff", "ContainerCreating")),
    "RankscopeContainerNotCreated": Case(waiting("CreateContainerConfigError", "PodInitializing")),
    "RankscopeJobPreempted": Case(
        (
            event(failure("DisruptionTarget", detail="PreemptionByScheduler")),
            event(failure("Evicted"), below=True),
            OWNER,
        ),
        linger=15,
        gap=5,
    ),
    "RankscopeJobTakenAway": Case(
        (
            event(failure("DisruptionTarget", detail="PreemptionByScheduler")),
            event(failure("Evicted"), below=True),
        ),
        linger=45,
        gap=5,
    ),
    "RankscopeJobRequeued": Case((gauge(f"rankscope_job_interruptions{{{JOB}}}", 5, 2, 2), OWNER)),
    "RankscopeQuotaWait": Case(
        (
            gauge(f'rankscope_job_pending_seconds{{{JOB},reason="quota"}}', 86_500, 86_300, 60),
            OWNER,
        )
    ),
    "RankscopeJobPending": Case(pods_by_phase((2, 0, 2), (0, 2, 1))),
    "RankscopeGangPartial": Case(pods_by_phase((1, 0, 1), (3, 4, 0))),
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
        step=12,
        gap=20,
        again=10,
    ),
    "RankscopeStepTailSlow": Case((*buckets((90, 99, 96), (10, 1, 4)), OWNER), lag=6, settle=15),
    "RankscopeSyncShareHigh": Case(
        (
            counter(f"rankscope_sync_time_seconds_sum{{{NODE},{JOB}}}", 31, 6, 29),
            counter(steps_of("_sum"), 60, 60, 60),
            OWNER,
        ),
        lag=6,
    ),
    "RankscopeLowGpuUtilisation": Case(
        utilization(0.2, 0.9, 0.31),
        lag=61,
        settle=70,
    ),
    "RankscopeGpusIdle": Case(
        utilization(0.0, 0.9, 0.021),
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
    "RankscopeSocketFallback": amiss("socket_fallback", 1, "plugin_failed"),
    "RankscopeNcclGdrMissing": amiss("gdr_missing", 8),
    "RankscopeNcclInitIncomplete": amiss("ranks_waiting", 1),
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
    "RankscopeNcclIntraNodeDegraded": amiss("shared_memory", 16),
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
    "RankscopeMissingRank": finding("missing_rank"),
    # GPUs.
    "RankscopeXidFatal": Case(
        (
            event(of_gpu("rankscope_gpu_xid_last_timestamp_seconds", 'xid="79",severity="fatal"')),
            event(of_gpu("rankscope_gpu_xid_last_timestamp_seconds", 'xid="13",severity="error"')),
            event(of_gpu("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="79"')),
            event(of_gpu("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="43"')),
            HOLDER,
        ),
        lag=10,
    ),
    "RankscopeGpuLost": condition("lost", "row_remap_pending"),
    "RankscopeGpuMemoryError": Case(
        (gauge(of_gpu("rankscope_gpu_recent_uncorrected_errors"), 1, None, None), HOLDER)
    ),
    "RankscopeGpuRowRemapPending": condition("row_remap_pending", "row_remap_failure"),
    "RankscopeGpuRowRemapFailed": condition("row_remap_failure", "row_remap_pending"),
    "RankscopeGpuThermalSlowdown": condition("thermal_slowdown", "power_brake", lag=5),
    "RankscopeGpuPowerLimited": Case(
        (
            gauge(of_gpu("rankscope_gpu_power_limit_reduced_ratio"), 5 / 7, None, 0.957),
            HOLDER,
        )
    ),
    "RankscopeGpuPcieDegraded": Case(
        (
            gauge(of_gpu("rankscope_gpu_pcie_link_reduced_ratio"), 0.5, None, None),
            HOLDER,
        )
    ),
    "RankscopeNvlinkFault": Case(
        (
            gauge(of_gpu("rankscope_gpu_nvlink_link_up", 'link="4"'), 0, 1, 1),
            event(of_gpu("rankscope_gpu_xid_last_timestamp_seconds", 'xid="149",severity="warn"')),
            event(of_gpu("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="145"')),
            HOLDER,
        )
    ),
    "RankscopeGpuClockLow": finding("clock_low", "gpu_compute"),
    "RankscopeGpuHardwareFault": finding("gpu_hardware"),
    "RankscopeGpuDriverFault": finding("driver"),
    "RankscopeGpuProgramFault": finding("app"),
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
    "RankscopePodInterface": Case(
        (
            gauge(
                f'rankscope_pod_nic_mtu_bytes{{{NODE},{JOB},pod_uid="p-1",device="net1"}}',
                9000,
                None,
            ),
            gauge(
                f'rankscope_pod_nic_mtu_bytes{{{OTHER},{JOB},pod_uid="p-2",device="net1"}}',
                1500,
                9000,
            ),
            *JOB_KNOWN,
        )
    ),
    "RankscopeLinkDown": finding("link_down"),
    "RankscopeLinkRateLow": finding("rate_below_maximum"),
    "RankscopeLinkCongestion": finding("congestion"),
    "RankscopeAsymmetricRail": finding("asymmetric_rail"),
    # Hosts.
    "RankscopeNodeResourceExhausted": Case(
        (gauge(f'rankscope_node_resource_used_ratio{{{NODE},resource="disk"}}', 0.96, 0.5, 0.94),)
    ),
    "RankscopeHostHardware": Case(
        (
            *(  # of one memory error
                event(f'rankscope_kernel_last_event_timestamp_seconds{{{NODE},kind="{kind}"}}')
                for kind in ("machine_check", "memory_uncorrected")
            ),
            counter(f'rankscope_edac_errors_total{{{NODE},severity="uncorrected"}}', 1),
            event(f'rankscope_kernel_last_event_timestamp_seconds{{{OTHER},kind="user_fault"}}'),
        ),
        lag=0,
        linger=16,
    ),
    "RankscopeDeviceNotStarted": Case(
        (
            event(
                f'rankscope_kernel_last_event_timestamp_seconds{{{NODE},kind="gpu_probe_failure"}}'
            ),
            event(f'rankscope_kernel_last_event_timestamp_seconds{{{OTHER},kind="link_down"}}'),
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
    "RankscopeJobFailureCascade": cascade(),
    "RankscopeJobInCascade": replace(cascade(), alerts=3),
    "RankscopeGoodputBurnFast": burn(570, 6, 425, Case((), lag=62, settle=380, step=1, gap=3)),
    "RankscopeGoodputBurnSlow": burn(
        100, 6, 28, Case((), lag=24 * 60 + 30, settle=3 * 1440 + 60, step=12, gap=20, again=20)
    ),
    "RankscopeObjectiveMissed": burn(
        100, 6, 55, Case((), lag=24 * 60 + 30, settle=2 * 1440, step=12, gap=20, again=20)
    ),
    "RankscopeBudgetPace": Case(
        (
            counter(
                'rankscope_project_cost_total{project="llm",job_class="",part="restart",'
                'currency="EUR"}',
                *(4, 0.1, 0.9),
            ),
            steady('rankscope_project_budget{project="llm",currency="EUR"}', 30 * 1440),
        ),
        lag=100,
        linger=310,
        settle=380,
        gap=3,
        again=10,
    ),
    # Of a day, bad must be two hours and a half until its mean is twice that of the week before.
    "RankscopeSpendingUnusual": Case(
        (
            spending("llm", {"bad": 10.0, "good": 1.0, "below": 1.9}),
            # Grows as much, and is a small part of what all spend.
            spending("notebooks", {"bad": 0.5, "good": 0.1, "below": 0.1}),
            spending("vision", dict.fromkeys(("bad", "good", "below"), 10.0)),
        ),
        lag=170,
        linger=1440,
        settle=7 * 1440 + 60,
        step=12,
        gap=20,
        again=20,
    ),
    "RankscopeRecoverySlow": Case(
        recoveries({"bad": 4, "good": 0, "below": 1}, 40), lag=12, linger=60, gap=3, again=12
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
    "RankscopeInvalidSamples": Case(
        (gauge(f'rankscope_invalid_samples{{{NODE},collector="pods"}}', 2, None, 0),)
    ),
    "RankscopeJobNameRefused": Case(
        (
            gauge(f'rankscope_job_names_rejected{{{NODE},reason="namespace"}}', 2, None, None),
            gauge(f'rankscope_training_rings_rejected{{{NODE},reason="symlink"}}', None, None, 1),
        )
    ),
    "RankscopeWatchLagging": Case(
        (
            clock(f'{WATCH_LAST}{{shard="0",shards="2",pod="a"}}'),
            heartbeat(f'{WATCH_LAST}{{shard="1",shards="2",pod="b"}}'),
            steady(f'{WATCH_LAST}{{shard="2",shards="3",pod="c"}}', 0),  # before it was two
        ),
        lag=6,
    ),
    "RankscopeStepsLagging": Case(
        (
            clock(f'{STEP_LOOK}{{shard="0",shards="2",pod="a"}}'),
            heartbeat(f'{STEP_LOOK}{{shard="1",shards="2",pod="b"}}'),
        ),
        lag=8,
    ),
    "RankscopeSilentRanks": Case(
        (
            gauge('rankscope_job_silent_ranks{job_id="team/llm",pod="a"}', 8, 0, 0),
            gauge('rankscope_job_silent_ranks{job_id="team/llm",pod="b"}', 0, 0, 0),
            steady('rankscope_job_silent_ranks{job_id="team/other",pod="a"}', 0),
        )
    ),
    "RankscopeCanaryMissed": Case(
        (
            heartbeat(f"rankscope_canary_step_timestamp_seconds{{{CANARY}}}"),
            heartbeat(f"rankscope_canary_named_timestamp_seconds{{{CANARY},{RIGHT}}}"),
        ),
        lag=131,
        linger=1,
        gap=5,
        step=5,
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
