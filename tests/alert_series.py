"""Series that make alerts fire: of jobs, nodes and devices, and of what is wrong with them."""

from __future__ import annotations

from dataclasses import replace

from alert_timelines import Case, Series, counter, event, gauge, steady

FOREIGN = {
    "kube_node_info",
    "kube_node_status_allocatable",
    "kube_node_spec_unschedulable",
    "kube_node_annotations",
    "kube_node_status_condition",
    "kube_pod_status_phase",
    "kube_pod_status_unschedulable",
    "kube_pod_container_resource_requests",
    "kube_pod_spec_volumes_persistentvolumeclaims_info",
}
"""Series of kube-state-metrics that rules and runbooks may read."""

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

CLIENTS = tuple(
    counter(f"rankscope_storage_client_{name}_total{{{NODE},{key}}}", *3 * (each,))
    for key in ('type="lustre",filesystem="scratch",operation="write"',)
    for name, each in (("operations", 60.0), ("operation_seconds", 9.0))
)
"""A node's client of Lustre, whose writes take 150 ms."""

RANK_THERE = steady(f'rankscope_rank_info{{{NODE},{JOB},rank="13"}}')

JOB_KNOWN = (OWNER, POD, HOLDER)
Values3 = tuple[float, float, float]


def of_gpu(name: str, more: str = "") -> str:
    return f"{name}{{{DEVICE}{',' if more else ''}{more}}}"


def condition(name: str, other: str, lag: int = 0) -> Case:
    """A condition that comes and goes, appearing when it is first seen; below, another one."""
    return Case(
        (
            gauge(of_gpu("rankscope_gpu_condition_active", f'condition="{name}"'), 1, 0, 0),
            gauge(of_gpu("rankscope_gpu_condition_active", f'condition="{other}"'), None, None, 1),
            HOLDER,
        ),
        lag=lag,
    )


def amiss(condition: str, count: float, reason: str = "") -> Case:
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


def finding(kind: str, symptom: str = "", lost: float | None = None) -> Case:
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


def utilization(bad: float, good: float, below: float) -> tuple[Series, ...]:
    return (
        gauge(f"rankscope_job_busy_gpus{{{NODE},{JOB}}}", 8 * bad, 8 * good, 8 * below),
        steady(f"rankscope_job_gpus{{{NODE},{JOB}}}", 8),
        OWNER,
    )


def failure(reason: str, job: str = JOB, detail: str = "") -> str:
    """Return the series of a job's newest failure on a node."""
    keys = f'{NODE},{job},reason="{reason}",detail="{detail}"'
    return f"rankscope_job_last_failure_timestamp_seconds{{{keys}}}"


def waiting(reason: str, other: str) -> tuple[Series, ...]:
    """Return pods that wait for a reason; below, for another one."""
    keys = f"{NODE},{JOB}"
    return (
        gauge(f'rankscope_job_waiting_pods{{{keys},reason="{reason}"}}', 2, None),
        gauge(f'rankscope_job_waiting_pods{{{keys},reason="{other}"}}', None, None, 1),
        OWNER,
    )


def pods_by_phase(pending: tuple[float, ...], running: tuple[float, ...]) -> tuple[Series, ...]:
    return (
        gauge(f'rankscope_job_pods{{{NODE},{JOB},phase="Pending"}}', *pending),
        gauge(f'rankscope_job_pods{{{OTHER},{JOB},phase="Running"}}', *running),
        OWNER,
        AGENTS,
    )


def spent(part: str) -> str:
    return f'rankscope_project_gpu_seconds_total{{project="llm",job_class="",part="{part}"}}'


def burn(lost: float, good: float, below: float, case: Case) -> Case:
    rest = 600 - lost, 600 - good, 600 - below
    series = (
        counter(spent("restart"), lost, good, below),
        counter(spent("productive"), *rest),
        counter(spent("unobserved"), 600, 600, 600),
    )
    return replace(case, series=series)


def steps_of(selector: str = "_count") -> str:
    return f"rankscope_step_latency_seconds{selector}{{{NODE},{JOB}}}"


def buckets(fast: tuple[float, float, float], slow: tuple[float, float, float]):
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


def busy(rank: str, node: str, slowest: Values3, median: Values3) -> tuple[Series, ...]:
    """What the agent of a node says of its ranks of a stage, when bad, good, and just not bad."""
    keys = f'{JOB},pp_stage="0",{node}'
    return (
        gauge(f"rankscope_stage_busy_seconds{{{keys}}}", *median),
        gauge(f'rankscope_stage_busiest_rank_seconds{{{keys},rank="{rank}"}}', *slowest),
    )


FINE = (1.0, 1.0, 1.0)

PEERS = tuple(
    one for i in range(3) for one in busy(f"{i * 8}", f'node="gpu-1{i}"', (1.05, 1.05, 1.05), FINE)
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
    step=12,
    gap=20,
    again=10,
)
"""A job without probes whose throughput is known from what it prints."""

LOST_AT_RESTART = Case(
    (gauge(f'rankscope_collector_success{{{NODE},collector="nvml"}}', 0, 1, 1),), settle=440
)
"""A GPU driver that does not come up with the node, so that the agent does not miss it."""

NVLINK_XIDS = tuple(
    Case((event(of_gpu(name, xid)),), lag=10, has_below=False)
    for name, xid in (
        ("rankscope_gpu_xid_last_timestamp_seconds", 'xid="149",severity="fatal"'),
        ("rankscope_gpu_xid_last_event_timestamp_seconds", 'xid="74"'),
    )
)
"""NVLinks that are known to be broken from what the driver reports, while all of them are up."""

UNWATCHED_STRAGGLER = Case((*busy("13", NODE, (1.6, 1.05, 1.2), FINE), *PEERS, OWNER))
"""The same alert without a watch."""

UNWATCHED_NODE = Case((*busy("13", NODE, (1.6, 1.05, 1.2), (1.58, 1.0, 1.19)), *PEERS, OWNER))
"""Likewise when all ranks of one node of four are slow."""

UNWATCHED_PAIR = Case((*busy("8", NODE, (1.55, 1.05, 1.5), (1.55, 1.0, 1.5)), *PEERS[:2], OWNER))
"""Likewise for a single rank beside one node: the median lies between the two, so it takes more."""


def cascade() -> Case:
    """Three jobs of six fail; below, two."""
    series = [
        event(failure("Error", f'job_id="team/j{i}"', "application"), below=i < 2) for i in range(3)
    ]
    running = [
        steady(f'rankscope_job_pods{{{NODE},job_id="team/r{i}",phase="Running"}}', 4)
        for i in range(6)
    ]
    return Case((*series, *running, AGENTS), linger=15, settle=20, gap=1)


def and_more(case: Case, *series: Series) -> Case:
    """Return a case with series beside its own."""
    return replace(case, series=(*case.series, *series))
