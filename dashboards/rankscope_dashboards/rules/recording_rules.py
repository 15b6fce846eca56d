"""Recording rules in two stages: first per node, then per job.

The agents have done most of the first stage: they summarise what rules would otherwise read for
every rank, GPU and port (metrics/summary.py). Past one Prometheus the second stage runs only over
records and series of nodes. Medians do not compose, so quantiles come from histograms, which can be
summed. Names are level:metric:operation, the level being the labels that remain besides `cluster`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rankscope_agent.contract.metrics import (
    agent,
    goodput,
    job_logs,
    job_status,
    pods,
    reported,
    summary,
    training,
)
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.goodput import parts
from rankscope_dashboards.expressions import events, failures, identity, volumes
from rankscope_dashboards.expressions.free_space import full_within_a_day
from rankscope_dashboards.expressions.job_ends import (
    SUCCESS_WINDOWS,
    judged,
    late,
    objective,
    recovered,
    succeeded,
)
from rankscope_dashboards.expressions.joins import join
from rankscope_dashboards.expressions.promql import (
    JOB_INFO_RECORD,
    LOG_POD,
    POD_JOB_RECORD,
    by,
    worst,
)
from rankscope_dashboards.expressions.storage import client_seconds

BURN_WINDOWS = ("30m", "1h", "2h", "6h", "1d", "3d")
"""Windows that the burn alerts compare, in addition to 5m, from which they are derived; a long one
is paired with one a twelfth or so as long."""

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

JOB_GPU = "job:rankscope_gpu_utilization:avg"
NODE_JOB_STEPS = "node_job:rankscope_steps:rate10m"
JOB_STEPS = "job:rankscope_steps:rate10m"
NODE_JOB_SAMPLES = "node_job:rankscope_samples:rate5m"
JOB_MEAN_STEP = "job:rankscope_step_latency_seconds:mean"
JOB_SAMPLES = "job:rankscope_samples:rate5m"
JOB_ALIVE = "job:rankscope_rank_alive:sum"
JOB_LATENCY = "job_le:rankscope_step_latency_seconds_bucket:rate5m"
NODE_JOB_SYNC = "node_job:rankscope_sync_time_seconds:rate5m"
NODE_JOB_STEP_TIME = "node_job:rankscope_step_latency_seconds:rate5m"
JOB_SYNC_SHARE = "job:rankscope_sync_time:ratio_rate5m"
JOB_WORLD_SIZE = "job:rankscope_world_size:max"
JOB_PODS = "job_phase:rankscope_job_pods:sum"
JOB_WAITING = "job_reason:rankscope_job_waiting_pods:sum"
JOB_ENVIRONMENTS = "job:rankscope_environments:count"
JOB_NCCL_VERSIONS = "job:rankscope_nccl_versions:count"
CLUSTER_AGENTS = "cluster:rankscope_agents:count"
CLUSTER_LOST = "cluster:rankscope_gpu_seconds_lost:rate5m"
CLUSTER_OBSERVED = "cluster:rankscope_gpu_seconds_observed:rate5m"
STAGE_MEDIAN = "job_stage:rankscope_rank_busy_seconds:median"
STAGE_WORST = "job_stage:rankscope_rank_busy_seconds:worst"
STAGE_NODES = "job_stage:rankscope_node_busy_seconds:worst"
CLIENT_OPERATION = "node_filesystem_operation:rankscope_storage_client_operation_seconds:mean10m"

NODE_ELASTIC_RANKS = "node_job:rankscope_elastic_ranks_alive:max"
NODE_ELASTIC_PODS = "node_job:rankscope_elastic_pods_running:max"
JOB_STORE_FREE = "job:rankscope_checkpoint_store_free_bytes:min"
JOB_VOLUME_FILLING = "job:rankscope_filling_volume_free:ratio"

MOST_SLOW = 10
"""Nodes of a stage whose slow ranks have alerts of their own. Of more, one takes the place of
another with each step, so that none is the slowest for long."""

CAUGHT_UP = "6m"
"""The window of a rate, and a minute in which an agent that was started reads the steps of hours
that rings hold: that is no throughput, and would be a day's mean once more."""

FEWEST_OPERATIONS = 20
"""Operations within the window that a recorded mean requires."""

PROJECT_COST = "project:rankscope_cost:rate5m"
PROJECT_DAY = "project:rankscope_cost:rate1d"
PROJECT_WEEK_BEFORE = "project:rankscope_cost:rate7d_offset1d"
CLASS_LOST = "job_class:rankscope_gpu_seconds_lost:rate5m"
CLASS_OBSERVED = "job_class:rankscope_gpu_seconds_observed:rate5m"
CLASS_GOODPUT = "job_class:rankscope_goodput:ratio1d"
GOODPUT_OBJECTIVE = "job_class:rankscope_goodput:objective"
CLASS_RECOVERIES = "job_class:rankscope_recoveries:sum7d"
CLASS_RECOVERIES_LATE = "job_class:rankscope_recoveries_late:sum7d"
CLASS_LATE = "job_class:rankscope_jobs_late:ratio7d"
SUCCESS_OBJECTIVE = "job_class:rankscope_job_completions_success:objective"
CLASS_JUDGED = "job_class:rankscope_job_completions_judged:sum7d"


def success(window: str) -> str:
    """Return the record of the share of a class's jobs that succeeded within a window."""
    return f"job_class:rankscope_job_completions_success:ratio{window}"


def quantile(name: str) -> str:
    """Return the record of a quantile of a job's step times: p50, p95 or p99."""
    return f"job:rankscope_step_latency_seconds:{name}_rate5m"


def burn(window: str) -> str:
    """Return the record of the fraction of GPU time that was lost within a window."""
    return f"cluster:rankscope_gpu_seconds_lost:ratio_rate{window}"


@dataclass(frozen=True, slots=True)
class Record:
    """One recording rule.

    Args:
        name: of the series.
        expression: its values.
        labels: of all of its series, which may take the place of those of the expression.
    """

    name: str
    expression: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Rules that are evaluated one after another, so that a later one may use an earlier one.

    Mimir takes 20 of a group, and 70 groups, unless it is configured otherwise
    (`-ruler.max-rules-per-rule-group`, `-ruler.max-rule-groups-per-tenant`).
    """

    name: str
    interval: str
    records: tuple[Record, ...]


def _gpus(matcher: str, *labels: str) -> str:
    """Return how many GPUs' time went into some parts, by project: those do not end as jobs do."""
    return f"sum {by(*labels)} (rate({goodput.PROJECT_GPU_SECONDS.name}{{{matcher}}}[5m]))"


def _part_lost(window: str) -> str:
    """Return lost time as a fraction of observed time.

    Means of the two records, of which a cluster has one each: the days of each job's counters, in
    all windows, would take Prometheus longer than all other rules.
    """
    lost, observed = (f"avg_over_time({one}[{window}])" for one in (CLUSTER_LOST, CLUSTER_OBSERVED))
    return f"{lost} / ({observed} > 0)"


def _few(series: str, *labels: str) -> str:
    """Return the largest few values per group."""
    return f"topk {by(*labels)} ({MOST_SLOW}, {series})"


def _different(series: str, label: str) -> str:
    """Return how many values a label has within a job."""
    return f"count {by('job_id')} (count {by('job_id', label)} ({series}))"


def _mean_of_gpus() -> str:
    return (
        f"sum {by('job_id')} ({summary.JOB_BUSY_GPUS.name})"
        f" / sum {by('job_id')} ({summary.JOB_GPUS.name})"
    )


def _mean_step() -> str:
    """Return the mean time of all steps that the job has made."""
    total, count = (
        f"sum {by('job_id')} ({training.STEP_LATENCY.name}_{part})" for part in ("sum", "count")
    )
    return f"{total} / {count}"


def _filling() -> str:
    """Return the free space of the fullest of a job's volumes that are full within a day."""
    share = f"{volumes.AVAILABLE} / {volumes.CAPACITY}"
    fills = full_within_a_day(volumes.AVAILABLE, *volumes.CLAIM)
    falling = f"{share} and on (cluster, {', '.join(volumes.CLAIM)}) ({fills})"
    return f"min {by('job_id')} ({volumes.of_jobs(falling)})"


def _samples() -> str:
    """Return samples per second from the probes, or else from what a rank of the job prints."""
    printed = join(job_logs.JOB_LOG_SAMPLES_RATE.name, LOG_POD, ("job_id",), POD_JOB_RECORD)
    return (
        f"sum {by('job_id')} ({NODE_JOB_SAMPLES}) or on (cluster, job_id) (max {by('job_id')}"
        f" ({printed}) unless on (cluster, job_id) {training.JOB_SAMPLES.name})"
    )


def _samples_of_nodes() -> str:
    """Return samples per second of probes by node and job, once the agent has caught up."""
    counted = training.JOB_SAMPLES.name
    known = f"{counted} offset {CAUGHT_UP} unless resets({counted}[{CAUGHT_UP}]) > 0"
    return f"sum {by('node', 'job_id')} (rate({counted}[5m]) and {known})"


NODE = RecordGroup(
    "rankscope-node",
    "30s",
    (
        Record(CLUSTER_AGENTS, f"count {by()} ({agent.BUILD_INFO.name})"),
        Record(
            NODE_JOB_STEPS,
            f"sum {by('node', 'job_id')} (rate({training.STEP_LATENCY.name}_count[10m]))",
        ),
        Record(NODE_JOB_SAMPLES, _samples_of_nodes()),
        Record(
            NODE_JOB_SYNC,
            f"sum {by('node', 'job_id')} (rate({training.SYNC_TIME.name}_sum[5m]))",
        ),
        Record(
            NODE_JOB_STEP_TIME,
            f"sum {by('node', 'job_id')} (rate({training.STEP_LATENCY.name}_sum[5m]))",
        ),
        Record(CLIENT_OPERATION, client_seconds("", "10m", FEWEST_OPERATIONS)),
    ),
)

JOB = RecordGroup(
    "rankscope-job",
    "30s",
    (
        Record(JOB_INFO_RECORD, identity.job_facts()),
        Record(POD_JOB_RECORD, identity.jobs_of_printing_pods()),
        # For clusters without a watch. Stages differ by design, so ranks are compared within
        # theirs. Agents have computed the median and the slowest of each node's ranks: the median
        # of nodes' medians is that of the ranks as long as fewer than half of the nodes are slow,
        # and each has as many ranks of the stage.
        Record(
            STAGE_MEDIAN, f"quantile {by('job_id', 'pp_stage')} (0.5, {summary.STAGE_BUSY.name})"
        ),
        # The labels of the scrape are dropped from the few results, not from the many ranks.
        *(
            Record(name, worst(_few(metric.name, "job_id", "pp_stage"), "node", *metric.labels))
            for name, metric in (
                (STAGE_WORST, summary.STAGE_BUSIEST),
                (STAGE_NODES, summary.STAGE_BUSY),
            )
        ),
        Record(JOB_STEPS, f"sum {by('job_id')} ({NODE_JOB_STEPS})"),
        Record(JOB_MEAN_STEP, _mean_step()),
        Record(JOB_SAMPLES, _samples()),
        # The agent has summed its node's ranks: a stage per node would keep as many series again.
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
    ),
)

JOB_STATE = RecordGroup(
    "rankscope-job-state",
    "30s",
    (
        Record(JOB_WORLD_SIZE, f"max {by('job_id')} ({summary.JOB_WORLD_SIZE.name})"),
        Record(JOB_ALIVE, f"sum {by('job_id')} ({summary.JOB_RANKS_ALIVE.name})"),
        Record(JOB_PODS, f"sum {by('job_id', 'phase')} ({pods.JOB_PODS.name})"),
        # Only of jobs that may go on with fewer: hours of it are looked up.
        Record(
            NODE_ELASTIC_RANKS,
            worst(
                f"{summary.JOB_RANKS_ALIVE.name} and on (cluster, job_id)"
                f" {training.JOB_REPLICA_GROUP_RANKS.name}",
                *("node", "job_id"),
            ),
        ),
        Record(
            NODE_ELASTIC_PODS,
            worst(
                f'{pods.JOB_PODS.name}{{phase="Running"}} and on (cluster, job_id)'
                f" {job_status.JOB_ELASTIC_PODS.name}",
                *("node", "job_id"),
            ),
        ),
        Record(JOB_WAITING, f"sum {by('job_id', 'reason')} ({job_status.JOB_WAITING_PODS.name})"),
        Record(JOB_GPU, _mean_of_gpus()),
        Record(JOB_STORE_FREE, f"min {by('job_id')} ({reported.STORE_FREE.name})"),
        Record(JOB_VOLUME_FILLING, _filling()),
        Record(JOB_ENVIRONMENTS, _different(summary.JOB_ENVIRONMENT_INFO.name, "hash")),
        Record(JOB_NCCL_VERSIONS, _different(summary.JOB_NCCL_INFO.name, "version")),
    ),
)

BURN = RecordGroup(
    "rankscope-burn",
    "1m",
    (
        Record(CLUSTER_OBSERVED, _gpus(f'part!="{parts.UNOBSERVED}"')),
        Record(CLUSTER_LOST, _gpus(f'part=~"{"|".join(parts.FAULTS)}"')),
        Record(burn("5m"), f"{CLUSTER_LOST} / ({CLUSTER_OBSERVED} > 0)"),
        *(Record(burn(window), _part_lost(window)) for window in BURN_WINDOWS),
    ),
)

COST = RecordGroup(
    "rankscope-cost",
    "1m",
    (
        Record(
            PROJECT_COST,
            f"sum {by('project', 'currency')} (rate({goodput.PROJECT_COST.name}[5m]))",
        ),
    ),
)

SPENDING = RecordGroup(
    "rankscope-spending-means",
    "5m",
    (
        Record(PROJECT_DAY, f"avg_over_time({PROJECT_COST}[1d])"),
        Record(PROJECT_WEEK_BEFORE, f"avg_over_time({PROJECT_COST}[7d] offset 1d)"),
    ),
)

EVENTS = RecordGroup(
    "rankscope-events",
    "1m",
    tuple(Record(name, expression) for name, expression in events.records()),
)

FAILURES = RecordGroup(
    "rankscope-failures",
    failures.HOURLY,
    (
        Record(failures.GPU_HOURS, failures.gpu_hours()),
        *(Record(name, expression) for name, expression in failures.grown()),
        # A rule per cause: all of them in one are longer than VictoriaMetrics takes.
        *(
            Record(failures.FAILURES, expression, {"cause": cause})
            for cause, expression in failures.failures()
        ),
    ),
)


def _classes(known: Configuration) -> RecordGroup:
    """Return the fraction of each class's GPU time that faults leave, and its objective."""
    lost, observed = (f"avg_over_time({one}[1d])" for one in (CLASS_LOST, CLASS_OBSERVED))
    return RecordGroup(
        "rankscope-classes",
        "1m",
        (
            Record(CLASS_OBSERVED, _gpus(f'part!="{parts.UNOBSERVED}"', "job_class")),
            Record(CLASS_LOST, _gpus(f'part=~"{"|".join(parts.FAULTS)}"', "job_class")),
            Record(CLASS_GOODPUT, f"1 - {lost} / ({observed} > 0)"),
            Record(GOODPUT_OBJECTIVE, objective(known.goodput, CLASS_OBSERVED)),
        ),
    )


def groups(known: Configuration | None = None) -> tuple[RecordGroup, ...]:
    """Return all groups.

    Args:
        known: objectives of the jobs of each class.
    """
    known = known or Configuration()
    ends = RecordGroup(
        "rankscope-job-ends",
        "5m",
        (
            *(Record(success(window), succeeded(window)) for window in SUCCESS_WINDOWS),
            Record(CLASS_JUDGED, judged("7d")),
            Record(SUCCESS_OBJECTIVE, objective(known.objectives)),
            Record(CLASS_LATE, late("7d")),
            Record(CLASS_RECOVERIES, recovered(f"{goodput.RECOVERIES.name}_count", "7d")),
            Record(CLASS_RECOVERIES_LATE, recovered(goodput.RECOVERIES_LATE.name, "7d")),
        ),
    )
    return NODE, JOB, JOB_STATE, EVENTS, BURN, COST, SPENDING, FAILURES, _classes(known), ends


GROUPS: tuple[RecordGroup, ...] = groups()
