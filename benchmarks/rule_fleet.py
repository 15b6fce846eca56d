"""The pages of a fleet of 16,384 ranks, as far as rules read them.

2,048 nodes of 8 ranks, 8 GPUs and 9 RDMA ports in jobs of 512 ranks, one `rankscope watch` and one
kube-state-metrics. They have every metric that a rule names, with as many series as an agent
exports, and also most of those that agents summarise. One node in 64 is faulty in every way that
has a series; one in eight has a GPU that was faulty once.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.contract.metrics import (
    agent,
    canary,
    cluster_jobs,
    goodput,
    gpus,
    host,
    job_logs,
    job_starts,
    job_status,
    kernel_log,
    nccl_log,
    netdev,
    pod_netdev,
    pods,
    rdma,
    reported,
    storage_clients,
    summary,
    training,
    watch,
)
from rankscope_agent.contract.model import Metric
from rankscope_agent.sources.training.totals import BUCKETS_SECONDS
from rankscope_analyzers.goodput import parts

NODES, RANKS_OF_A_NODE, PORTS_OF_A_NODE, NODES_OF_A_JOB = 2048, 8, 9, 64
STAGES = 4
FAULTY_EVERY, ONCE_FAULTY_EVERY = 64, 8
REASONS = ("hw_power_brake", "hw_slowdown", "hw_thermal_slowdown", "idle", "sw_power_cap")
COLLECTORS = (
    *("pods", "training", "flight_recorder", "nccl_log", "nccl_ras", "nccl_inspector", "rdma"),
    *("netdev", "topology", "nvml", "dcgm", "kernel_log", "host", "summary"),
)

STEPS, STEPS_OF_ALL, BYTES = "@steps@", "@steps_of_all@", "@bytes@"
"""Placeholder for a counter's value in a page until it is served."""


def filled(page: str, steps: int) -> str:
    """Return a page after some steps of a second each."""
    return (
        page.replace(STEPS_OF_ALL, str(steps * RANKS_OF_A_NODE))
        .replace(STEPS, str(steps))
        .replace(BYTES, str(steps * 20_000_000_000))
    )


def page_of_nodes(first: int, count: int) -> str:
    """Return the pages of some nodes' agents, with placeholders for counters."""
    return "".join(line for node in range(first, first + count) for line in _node(node))


def _line(metric: Metric, labels: str, value: float | str, part: str = "") -> str:
    return f"{metric.name}{part}{{{labels}}} {value}\n"


def _node(node: int) -> Iterator[str]:
    on, job = f'node="n{node}"', f'job_id="team/job-{node // NODES_OF_A_JOB}"'
    yield from _agent(on)
    yield from _pod(node, on, job)
    yield from _steps(f"{on},{job}")
    for index in range(RANKS_OF_A_NODE):
        yield from _rank(node, index, on, job)
        yield from _gpu(node, index, on, job)
    for number in range(PORTS_OF_A_NODE):
        yield from _port(f'{on},device="mlx5_{number}",port="1"')
    yield from _summary(node, on, job)
    if node % FAULTY_EVERY == 7:
        yield from _faults(node, on, job)


def _agent(on: str) -> Iterator[str]:
    yield _line(agent.BUILD_INFO, f'{on},version="0.1.0",python_version="3.12.3",simulated=""', 1)
    yield _line(agent.PAGE_SERIES_DROPPED, on, 0)
    for collector in COLLECTORS:
        yield _line(agent.COLLECTOR_SUCCESS, f'{on},collector="{collector}"', 1)
    yield _line(host.EDAC_ERRORS, f'{on},severity="corrected"', 3)
    yield _line(host.EDAC_ERRORS, f'{on},severity="uncorrected"', 0)
    for kind in ("oom_kill", "link_down"):
        yield _line(kernel_log.KERNEL_LAST_EVENT, f'{on},kind="{kind}"', 1.7e9)
    yield _line(kernel_log.BOOT_TIME, f'{on},reason="clean"', 1.7e9)
    yield _line(kernel_log.KERNEL_LOG_INFO, f'{on},source="kmsg"', 1)
    for reason in ("clean", "crashed", "unexpected", "unknown"):
        yield _line(kernel_log.REBOOTS, f'{on},reason="{reason}"', 0)


def _pod(node: int, on: str, job: str) -> Iterator[str]:
    owner = 'kind="PyTorchJob",project="p",class="production",owner="o",team="t",queue="q"'
    yield _line(pods.JOB_INFO, f'{on},{job},{owner},gang="",parent=""', 1)
    yield _line(pods.JOB_PODS, f'{on},{job},phase="Running"', 1)
    for counted in (job_status.JOB_FAILURES, job_status.JOB_RESTARTS, job_status.JOB_PREEMPTIONS):
        yield _line(counted, f"{on},{job}", 0)
    yield _line(job_status.JOB_CONTAINER_RESTARTS, f"{on},{job}", 1)
    for bound in ("min", "max"):
        yield _line(job_status.JOB_ELASTIC_PODS, f'{on},{job},bound="{bound}"', NODES_OF_A_JOB)
    pod = f'{on},pod_namespace="team",pod_name="p-{node}"'
    yield _line(summary.POD_JOB_INFO, f'{pod},{job},pod_uid="u-{node}"', 1)
    yield _line(nccl_log.NCCL_SOCKET_FALLBACK, f'{pod},reason="none"', 0)
    network = f'{pod},pod_uid="u-{node}",net="IB",plugin="",version="2.27.3"'
    yield _line(nccl_log.NCCL_NET_INFO, network, 1)
    yield _line(nccl_log.NCCL_GDR_MISSING, pod, 0)
    yield _line(nccl_log.NCCL_RANKS_EXPECTED, pod, 64)
    yield _line(nccl_log.NCCL_RANKS_INITIALIZED, pod, 64)
    for transport, gdr, scope in (
        ("P2P", "unknown", "intra_node"),
        ("NET/IB", "true", "inter_node"),
    ):
        ways = f'transport="{transport}",gdr="{gdr}",scope="{scope}"'
        yield _line(nccl_log.NCCL_CONNECTIONS, f"{pod},{ways}", 96)
    if node % NODES_OF_A_JOB == 0:
        log = f'{pod},framework="megatron",source="stdout"'
        yield _line(job_logs.JOB_LOG_LOSS, log, 2.5)
        yield _line(job_logs.JOB_LOG_SAMPLES_RATE, log, 512)
        yield _line(job_logs.JOB_LOG_NONFINITE_LOSSES, log, 0)


def _steps(labels: str) -> Iterator[str]:
    for metric in (training.STEP_LATENCY, training.SYNC_TIME):
        for bound in (*BUCKETS_SECONDS, "+Inf"):
            count = STEPS_OF_ALL if bound == "+Inf" or float(bound) >= 1 else 0
            yield _line(metric, f'{labels},le="{bound}"', count, "_bucket")
        yield _line(metric, labels, STEPS_OF_ALL, "_count")
        yield _line(metric, labels, STEPS_OF_ALL, "_sum")
    yield _line(training.JOB_SAMPLES, labels, STEPS_OF_ALL)


def _stage(number: int) -> int:
    return number * STAGES // (NODES_OF_A_JOB * RANKS_OF_A_NODE)


def _rank(node: int, index: int, on: str, job: str) -> Iterator[str]:
    number = node % NODES_OF_A_JOB * RANKS_OF_A_NODE + index
    rank = f'{on},{job},rank="{number}"'
    more = f'local_rank="{index}",world_size="512",uuid="GPU-{node}-{index}",pod_uid="u-{node}"'
    pod = f'pod_namespace="team",pod_name="p-{node}",pp_stage="{_stage(number)}"'
    yield _line(training.RANK_INFO, f"{rank},{more},{pod}", 1)
    yield _line(pods.RANK_ENVIRONMENT_INFO, f'{rank},hash="3f2a"', 1)
    yield _line(training.RANK_ALIVE, rank, 1)
    yield _line(training.STEPS, rank, STEPS)
    yield _line(training.SAMPLES, rank, STEPS)
    newest = {
        training.LAST_STEP_SECONDS: 1.0,
        training.LAST_DATA_SECONDS: 0.01,
        training.LAST_COMPUTE_SECONDS: 0.7,
    }
    for metric, value in newest.items():
        yield _line(metric, rank, value + 0.001 * (number % 7))
    yield _line(training.CHECKPOINT_WRITE_FAILURES, rank, 0)
    yield _line(reported.CHECKPOINT_LOAD_FAILURES, rank, 0)
    yield _line(reported.NONFINITE_LOSSES, rank, 0)


def _gpu(node: int, index: int, on: str, job: str) -> Iterator[str]:
    uuid = f'gpu="{index}",uuid="GPU-{node}-{index}"'
    device = f'{on},{uuid},pci="0000:{index}b:00"'
    yield _line(pods.GPU_ALLOCATION_INFO, f'{on},{uuid},{job},pod_name="p-{node}"', 1)
    yield _line(gpus.GPU_UTILIZATION, device, 0.95)
    yield _line(gpus.GPU_NVLINKS_UP, device, 18)
    for metric in (
        *(gpus.GPU_LOST, gpus.GPU_UNRESPONSIVE, gpus.GPU_REMAP_PENDING, gpus.GPU_REMAP_FAILURE),
        *(gpus.GPU_SRAM_THRESHOLD, kernel_log.GPU_FALLEN, kernel_log.GPU_INIT_FAILURES),
    ):
        yield _line(metric, device, 0)
    for reason in REASONS:
        yield _line(gpus.GPU_CLOCK_EVENT, f'{device},reason="{reason}"', 0)


def _port(port: str) -> Iterator[str]:
    yield _line(rdma.PORT_STATE, port, 4)
    yield _line(rdma.PORT_RATE, port, 5e10)
    yield _line(rdma.TRANSMIT_BYTES, port, BYTES)
    yield _line(rdma.LINK_FLAPS, port, 0)
    for type_ in ("symbol_error", "port_rcv_errors", "link_recoveries"):
        yield _line(rdma.PORT_ERRORS, f'{port},type="{type_}"', 0)


def _summary(node: int, on: str, job: str) -> Iterator[str]:
    first = node % NODES_OF_A_JOB * RANKS_OF_A_NODE
    stage = f'{on},{job},pp_stage="{_stage(first)}"'
    yield _line(summary.STAGE_BUSY, stage, 0.713 + 0.001 * (node % 5))
    yield _line(summary.STAGE_BUSIEST, f'{stage},rank="{first + node % 8}"', 0.716)
    yield _line(summary.JOB_WORLD_SIZE, f"{on},{job}", 512)
    yield _line(summary.JOB_RANKS_ALIVE, f"{on},{job}", RANKS_OF_A_NODE)
    yield _line(job_starts.JOB_PROCESSES_STARTED, f"{on},{job}", 1.7e9)
    yield _line(summary.JOB_GPUS, f"{on},{job}", RANKS_OF_A_NODE)
    yield _line(summary.JOB_BUSY_GPUS, f"{on},{job}", 7.6)
    yield _line(summary.JOB_ENVIRONMENT_INFO, f'{on},{job},hash="3f2a"', 1)
    yield _line(summary.JOB_NCCL_INFO, f'{on},{job},version="2.27.3"', 1)
    if node % ONCE_FAULTY_EVERY == 4:
        yield _line(summary.NODE_RESOURCE_USED, f'{on},resource="disk"', 0.85)
    if node % ONCE_FAULTY_EVERY == 3:
        once = f'{on},gpu="3",uuid="GPU-{node}-3",pci="0000:3b:00",condition="thermal_slowdown"'
        yield _line(summary.GPU_CONDITION, once, 0)


def _checkpoints(on: str, job: str, rank: str) -> Iterator[str]:
    yield _line(training.CHECKPOINT_LAST_SUCCESS, rank, 1.7e9)
    yield _line(reported.CHECKPOINT_OBJECTIVE, on, 3600)
    yield _line(reported.CHECKPOINT_SHARED, f"{on},{job}", 0)
    for metric, value in (
        *((reported.STORE_FREE, 4e11), (reported.STORE_SIZE, 1e12)),
        *((reported.LOSS_LEVEL, 2.1), (reported.LOSS_BEFORE_RESTART, 2.0)),
        (reported.LOSS_LOWEST, 2.0),
    ):
        yield _line(metric, rank, value)


def _faults(node: int, on: str, job: str) -> Iterator[str]:
    device = f'{on},gpu="5",uuid="GPU-{node}-5",pci="0000:5b:00"'
    for condition in ("lost", "row_remap_pending", "row_remap_failure", "thermal_slowdown"):
        yield _line(summary.GPU_CONDITION, f'{device},condition="{condition}"', 1)
    for metric in (
        *(summary.GPU_POWER_REDUCED, summary.GPU_PCIE_REDUCED, summary.GPU_RECENT_UNCORRECTED),
        gpus.GPU_XID_TIMESTAMP,
    ):
        yield _line(metric, device + ',xid="79"' * ("xid" in metric.labels), 0.5)
    yield from _kernel_faults(on, device)
    yield _line(agent.INVALID_SAMPLES, f'{on},collector="pods"', 2)
    yield _line(gpus.GPU_NVLINK_LINK_UP, f'{device},link="3"', 0)
    yield _line(gpus.GPU_FABRIC_UNHEALTHY, f'{device},check="bandwidth"', 1)
    failed = f'{on},{job},reason="Error",detail="application"'
    yield _line(job_status.JOB_LAST_FAILURE, failed, 1.7e9)
    logged = f'{on},{job},cause="gpu_oom",rank="3",own="true"'
    yield _line(job_logs.JOB_LOG_FAILURE, logged, 1.7e9)
    yield _line(job_status.JOB_WAITING_PODS, f'{on},{job},reason="CrashLoopBackOff"', 1)
    rank = f'{on},{job},rank="0"'
    yield _line(training.SPAN_BEGAN, f'{rank},kind="checkpoint_save"', 1.7e9)
    yield from _checkpoints(on, job, rank)
    port = f'{on},device="mlx5_3",port="1"'
    for metric in (
        *(summary.PORT_RECENT_ERRORS, summary.PORT_RECENT_RETRANSMISSIONS),
        *(summary.PORT_RECENT_FLAPS, summary.PORT_BUSY),
    ):
        yield _line(metric, port, 200)
    for metric in (summary.NIC_PAUSED, summary.NIC_RECENT_STORMS):
        yield _line(metric, f'{on},device="eth2"', 1)
    yield _line(summary.PCI_REDUCED, f'{on},pci="0000:1d:00.0"', 0.5)
    unhealthy = f'{on},pci="0000:1d:00.0",reporter="fw_fatal"'
    yield _line(netdev.ADAPTER_UNHEALTHY, unhealthy, 1)
    inside = f'{on},{job},pod_uid="u-{node}",device="net1"'
    for metric, value in ((pod_netdev.MTU, 9000), (pod_netdev.UP, 1)):
        yield _line(metric, inside, value)
    yield _line(pod_netdev.ERRORS, f'{inside},direction="receive"', 0)
    pod = f'{on},{job},pod_namespace="team",pod_name="p-{node}"'
    for condition in ("socket_fallback", "gdr_missing", "ranks_waiting", "shared_memory"):
        why = f'condition="{condition}",reason="plugin_failed"'
        yield _line(summary.POD_CONDITION, f"{pod},{why}", 1)
    yield _line(summary.POD_RECENT_OOM_KILLS, f'{on},{job},pod_uid="u-{node}"', 3)
    client = f'{on},type="lustre",filesystem="scratch",operation="read"'
    for metric in (storage_clients.OPERATIONS, storage_clients.SECONDS):
        yield _line(metric, client, STEPS)
    yield _line(agent.COLLECTOR_FAILING, f'{on},collector="netdev"', 1)
    yield _line(training.JOB_REPLICA_GROUP_RANKS, f"{on},{job}", 8)
    yield _line(pods.JOB_NAMES_REJECTED, f'{on},reason="namespace"', 1)
    yield _line(training.RINGS_REJECTED, f'{on},reason="identity"', 1)
    pod = f'{on},pod_namespace="team",pod_name="p-{node}"'
    yield _line(nccl_log.NCCL_IB_ERRORS, f'{pod},device="mlx5_3",status="12"', 1)
    yield _line(nccl_log.NCCL_TIMEOUTS, f'{pod},op="ALLREDUCE"', 1)


def _kernel_faults(on: str, device: str) -> Iterator[str]:
    for metric, value in ((kernel_log.XID_ERRORS, 1), (kernel_log.XID_LAST, 1.7e9)):
        yield _line(metric, f'{device},xid="79",severity="fatal"', value)
    yield _line(kernel_log.SXID_ERRORS, f'{on},pci="0000:07:00.0",sxid="20034",severity="fatal"', 1)
    yield _line(kernel_log.NIC_TIMEOUTS, f'{on},pci="0000:1d:00.0"', 1)
    yield _line(kernel_log.DISK_ERRORS, f'{on},disk="nvme0n1"', 1)
    yield _line(kernel_log.KERNEL_OOM_KILLS, f'{on},scope="node",pod_uid=""', 1)


CANARY = 'job_id="team-0/rankscope-canary"'


def page_of_watch() -> str:
    """Return what the watch exports: every fourth job has a straggler."""
    return "".join(line for job in range(NODES // NODES_OF_A_JOB) for line in _judged(job)) + (
        _ended()
        + _spent()
        + _line(watch.WATCH_LAST, 'shard="0",shards="1"', "1.7e9")
        + _line(watch.WATCH_UNREAD_SINCE, 'shard="0",shards="1"', "1.7e9")
        + _line(watch.WATCH_STEP_LOOK, 'shard="0",shards="1"', "1.7e9")
        + _line(watch.WATCH_ANALYSIS_ERRORS, 'part="job"', 0)
        + _line(watch.WATCH_LEADING, 'lease="rankscope/rankscope-watch"', 1)
        + _line(watch.WATCH_LEASE_UP, 'lease="rankscope/rankscope-watch"', 1)
        + _line(canary.CANARY_STEP, CANARY, "1.7e9")
        + _line(canary.CANARY_NAMED, CANARY + ',symptom="gpu_compute",rank="2"', "1.7e9")
    )


def _spent() -> str:
    """Return where GPU time went: of 20 projects, each with three classes."""
    return (
        "".join(
            _line(
                goodput.PROJECT_GPU_SECONDS,
                f'project="team-{team}",job_class="{name}",part="{part}"',
                STEPS_OF_ALL,
            )
            for team in range(20)
            for name in ("production", "research", "default")
            for part in parts.PARTS
        )
        + "".join(
            _line(goodput.PROJECT_BUDGET, f'project="team-{team}",currency="EUR"', 1e6)
            + _line(
                goodput.PROJECT_COST,
                f'project="team-{team}",job_class="production",part="productive",currency="EUR"',
                STEPS_OF_ALL,
            )
            for team in range(20)
        )
        + "".join(
            _line(one, f'job_class="{name}",interruption="{interruption}"', STEPS_OF_ALL, part)
            for one, part in ((goodput.RECOVERIES, "_count"), (goodput.RECOVERIES_LATE, ""))
            for name in ("production", "research", "default")
            for interruption in ("restart", "hang")
        )
    )


def _ended() -> str:
    """Return how jobs of 20 namespaces and three classes ended, and how long they took."""
    return (
        "".join(
            _line(
                cluster_jobs.JOB_COMPLETIONS,
                f'job_namespace="team-{team}",job_class="{name}",outcome="failed",cause="c{cause}"',
                STEPS_OF_ALL,
            )
            for team in range(20)
            for name in ("production", "research", "default")
            for cause in range(8)
        )
        + "".join(
            _line(
                cluster_jobs.JOB_DURATION,
                f'job_class="{name}",le="{bound}"',
                STEPS_OF_ALL,
                "_bucket",
            )
            for name in ("production", "research", "default")
            for bound in (*(600 * 2**power for power in range(11)), "+Inf")
        )
        + "".join(
            _line(cluster_jobs.JOB_DURATION, f'job_class="{name}"', STEPS_OF_ALL, "_count")
            + _line(cluster_jobs.JOBS_LATE, f'job_class="{name}"', 1)
            for name in ("production", "research", "default")
        )
    )


def _judged(number: int) -> Iterator[str]:
    job = f'job_id="team/job-{number}"'
    yield _line(watch.OBSERVED_GPU_SECONDS, job, STEPS_OF_ALL)
    for part in parts.PARTS:
        yield _line(goodput.JOB_GPU_SECONDS, f'{job},part="{part}"', STEPS_OF_ALL)
    yield _line(watch.JOB_SILENT_RANKS, job, 0)
    yield _line(watch.JOB_UNOBSERVED, job, 0)
    yield _line(cluster_jobs.JOB_UNSCHEDULED_PODS, job, 0)
    yield _line(cluster_jobs.JOB_WAITING_GPUS, job, 0)
    yield _line(cluster_jobs.JOB_HELD_GPUS, job, 8)
    yield _line(cluster_jobs.JOB_INTERRUPTIONS, job, 1)
    yield _line(cluster_jobs.JOB_PENDING, f'{job},reason="image"', 30)
    if number % 4 == 0:
        finding = f'{job},kind="thermal_slowdown"'
        culprit = 'symptom="gpu_compute",rank="13",node="n1",gpu="5",uuid="GPU-1-5",device=""'
        yield _line(watch.LOST_GPU_SECONDS, f'{job},cause="thermal_slowdown"', STEPS)
        yield _line(watch.FINDING_ACTIVE, f'{finding},severity="ticket",owned_by="ml"', 1)
        yield _line(watch.FINDING_CULPRIT_INFO, f'{finding},{culprit},runbook="r"', 1)
        yield _line(watch.FINDING_LOST_FRACTION, finding, 0.2)


def page_of_kubernetes() -> str:
    """Return what kube-state-metrics exports of nodes and of the pods on them; one waits."""
    waiting = 'kube_pod_status_unschedulable{namespace="team",pod="q-0",uid="u"} 1\n'
    return waiting + "".join(
        f'kube_node_status_allocatable{{node="n{node}",resource="nvidia_com_gpu"}} 8\n'
        f'kube_node_status_allocatable{{node="n{node}",resource="cpu"}} 192\n'
        f'kube_pod_container_resource_requests{{namespace="team",pod="p-{node}",uid="u-{node}",'
        f'container="main",node="n{node}",resource="nvidia_com_gpu",unit="integer"}} 8\n'
        f'kube_pod_spec_volumes_persistentvolumeclaims_info{{namespace="team",pod="p-{node}",'
        f'persistentvolumeclaim="data"}} 1\n'
        f'kube_node_info{{node="n{node}"}} 1\n'
        f'kube_node_status_condition{{node="n{node}",condition="Ready",status="true"}} 1\n'
        f'kube_node_spec_unschedulable{{node="n{node}"}} {int(node % FAULTY_EVERY == 7)}\n'
        f'kube_node_annotations{{node="n{node}",annotation_rankscope_io_maintenance=""}} 1\n'
        for node in range(NODES)
    )
