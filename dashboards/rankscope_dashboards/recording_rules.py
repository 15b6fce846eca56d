"""Recording rules in two stages: per node first, then per job from what the nodes say.

The first stage is evaluated where a node's series are; past one Prometheus the second runs over
the first's records only. Medians do not compose, so quantiles come from histograms that add up.
Names are level:metric:operation, the level being the labels that are left besides `cluster`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankscope_agent.metrics import gpu, pods, rdma, training, watch
from rankscope_dashboards.promql import JOB_INFO_RECORD, POD_JOB_RECORD, PORT, by, worst

BURN_WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
"""Windows that the burn alerts compare; a long one is paired with one a twelfth or so as long."""

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

PORT_TRAFFIC = "node_device:rankscope_rdma_port_transmit:ratio_rate5m"
NODE_GPU = "node:rankscope_gpu_utilization:avg"
JOB_GPU = "job:rankscope_gpu_utilization:avg"
NODE_JOB_STEPS = "node_job:rankscope_steps:rate10m"
JOB_STEPS = "job:rankscope_steps:rate10m"
NODE_JOB_SAMPLES = "node_job:rankscope_samples:rate5m"
JOB_SAMPLES = "job:rankscope_samples:rate5m"
NODE_JOB_ALIVE = "node_job:rankscope_rank_alive:sum"
JOB_ALIVE = "job:rankscope_rank_alive:sum"
JOB_LATENCY = "job_le:rankscope_step_latency_seconds_bucket:rate5m"
NODE_JOB_SYNC = "node_job:rankscope_sync_time_seconds:rate5m"
NODE_JOB_STEP_TIME = "node_job:rankscope_step_latency_seconds:rate5m"
JOB_SYNC_SHARE = "job:rankscope_sync_time:ratio_rate5m"
JOB_SLOWEST = "job:rankscope_last_step_seconds:max"
STAGE_MEDIAN = "job_stage:rankscope_rank_busy_seconds:median"
STAGE_WORST = "job_stage:rankscope_rank_busy_seconds:worst"
NODE_JOB_SLOWEST = "node_job:rankscope_last_step_seconds:max"


def quantile(name: str) -> str:
    """Return the record of a quantile of a job's step times: p50, p95 or p99."""
    return f"job:rankscope_step_latency_seconds:{name}_rate5m"


def burn(window: str) -> str:
    """Return the record of the part of GPU time that was lost within a window."""
    return f"cluster:rankscope_gpu_seconds_lost:ratio_rate{window}"


@dataclass(frozen=True, slots=True)
class Record:
    """One recording rule."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Rules that are evaluated one after another, so that a later one may use an earlier one."""

    name: str
    interval: str
    records: tuple[Record, ...]


def _lost(window: str) -> str:
    lost = f"sum {by()} (rate({watch.LOST_GPU_SECONDS.name}[{window}]))"
    observed = f"sum {by()} (rate({watch.OBSERVED_GPU_SECONDS.name}[{window}]))"
    # Jobs that never lost anything have no series of lost time: that is 0 of what was observed.
    return f"({lost} or {observed} * 0) / ({observed} > 0)"


def _identity() -> tuple[Record, ...]:
    facts = ("job_id", "class", "owner", "team", "project")
    info = worst(pods.JOB_INFO.name, *facts)
    pod = ("node", "pod_namespace", "pod_name")
    # Each is made small before the two are compared, which is the costly part.
    known = worst(training.RANK_INFO.name, "job_id", *pod)
    held = worst(f'{pods.GPU_ALLOCATION_INFO.name}{{job_id!=""}}', "job_id", *pod)
    return (
        # Pods of one job may be labelled differently; a join needs one answer.
        Record(JOB_INFO_RECORD, f"topk {by('job_id')} (1, {info})"),
        Record(POD_JOB_RECORD, f"topk {by(*pod)} (1, {known} or {held})"),
    )


def _busy() -> str:
    """Return the time that each rank needs itself in its newest step, with its pipeline stage."""
    # What ended ranks did last stays on the page for a while.
    alive = f"and on (cluster, node, job_id, rank) {training.RANK_ALIVE.name} == 1"
    own = f"{training.LAST_DATA_SECONDS.name} + {training.LAST_COMPUTE_SECONDS.name} {alive}"
    stages = worst(training.RANK_INFO.name, "job_id", "rank", "pp_stage")
    return f"({own}) * on (cluster, job_id, rank) group_left (pp_stage) {stages}"


def _worst_of_stage() -> str:
    one = f"topk {by('job_id', 'pp_stage')} (1, {_busy()})"
    # The labels of the scrape are dropped from the few results, not from the many ranks.
    return worst(one, "node", "job_id", "rank", "pp_stage")


NODE = RecordGroup(
    "rankscope-node",
    "30s",
    (
        Record(NODE_GPU, f"avg {by('node')} ({gpu.GPU_UTILIZATION.name})"),
        Record(
            PORT_TRAFFIC,
            worst(f"rate({rdma.TRANSMIT_BYTES.name}[5m]) / {rdma.PORT_RATE.name}", *PORT),
        ),
        Record(
            NODE_JOB_STEPS,
            f"sum {by('node', 'job_id')} (rate({training.STEP_LATENCY.name}_count[10m]))",
        ),
        Record(
            NODE_JOB_SAMPLES,
            f"sum {by('node', 'job_id')} (rate({training.SAMPLES.name}[5m]))",
        ),
        Record(NODE_JOB_ALIVE, f"sum {by('node', 'job_id')} ({training.RANK_ALIVE.name})"),
        Record(
            NODE_JOB_SYNC,
            f"sum {by('node', 'job_id')} (rate({training.SYNC_TIME.name}_sum[5m]))",
        ),
        Record(
            NODE_JOB_STEP_TIME,
            f"sum {by('node', 'job_id')} (rate({training.STEP_LATENCY.name}_sum[5m]))",
        ),
        Record(NODE_JOB_SLOWEST, worst(training.LAST_STEP_SECONDS.name, "node", "job_id")),
    ),
)

JOB = RecordGroup(
    "rankscope-job",
    "30s",
    (
        *_identity(),
        # For clusters without a watch. Stages differ by design, so that ranks are compared within
        # theirs; a median needs all ranks of the stage in one place.
        Record(STAGE_MEDIAN, f"quantile {by('job_id', 'pp_stage')} (0.5, {_busy()})"),
        Record(STAGE_WORST, _worst_of_stage()),
        Record(JOB_STEPS, f"sum {by('job_id')} ({NODE_JOB_STEPS})"),
        Record(JOB_SAMPLES, f"sum {by('job_id')} ({NODE_JOB_SAMPLES})"),
        Record(JOB_ALIVE, f"sum {by('job_id')} ({NODE_JOB_ALIVE})"),
        Record(JOB_SLOWEST, f"max {by('job_id')} ({NODE_JOB_SLOWEST})"),
        # The agent has added up its node's ranks: a stage per node would keep as many series again.
        Record(
            JOB_LATENCY,
            f"sum {by('job_id', 'le')} (rate({training.STEP_LATENCY.name}_bucket[5m]))",
        ),
        *(
            Record(quantile(name), f"histogram_quantile({value}, {JOB_LATENCY})")
            for name, value in QUANTILES.items()
        ),
        Record(
            JOB_SYNC_SHARE,
            f"sum {by('job_id')} ({NODE_JOB_SYNC}) / sum {by('job_id')} ({NODE_JOB_STEP_TIME})",
        ),
        Record(
            JOB_GPU,
            f"avg {by('job_id')} ({gpu.GPU_UTILIZATION.name}"
            " * on (cluster, node, uuid) group_left (job_id) "
            + worst(f'{pods.GPU_ALLOCATION_INFO.name}{{job_id!=""}}', "node", "uuid", "job_id")
            + ")",
        ),
    ),
)

BURN = RecordGroup(
    "rankscope-burn", "1m", tuple(Record(burn(window), _lost(window)) for window in BURN_WINDOWS)
)

GROUPS: tuple[RecordGroup, ...] = (NODE, JOB, BURN)
