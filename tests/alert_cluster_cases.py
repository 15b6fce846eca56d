"""Series that bring about the alerts about clusters, agents, watches and the canary."""

from __future__ import annotations

from dataclasses import replace

from alert_series import (
    LEASE,
    NODE,
    cascade,
)
from alert_timelines import Case, clock, counter, gauge, heartbeat, steady
from rankscope_dashboards.rules.alerts.canary import RIGHT

WATCH_LAST = "rankscope_watch_last_evaluation_timestamp_seconds"
STEP_LOOK = "rankscope_watch_last_step_look_timestamp_seconds"

CANARY = 'job_id="rankscope/rankscope-canary"'

CLUSTER_CASES: dict[str, Case] = {
    "RankscopeJobFailureCascade": cascade(),
    "RankscopeJobInCascade": replace(cascade(), alerts=3),
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
    "RankscopeNoAgents": Case(
        (
            gauge(f'rankscope_build_info{{{NODE},version="1"}}', None, 1, None),
            gauge('rankscope_build_info{node="gpu-08",version="1"}', None, 1, 1),
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
