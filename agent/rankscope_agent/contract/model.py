"""The values exchanged by collectors, exposition, API and analyzers.

This module is part of the agent's contract: it needs only the standard library and has no behaviour
except validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rankscope_agent.contract.shards import Jobs

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """Cumulative bucket counts as Prometheus expects them.

    Args:
        buckets: pairs of (upper bound, observations <= that bound), bounds ascending, without +Inf.
        count: all observations, that is, the +Inf bucket.
        sum: sum of the observed values, in the metric's unit.
    """

    buckets: tuple[tuple[float, int], ...]
    count: int
    sum: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric; `labels` are in the order of `metric.labels`."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | HistogramValue


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as declared in the catalogue; `name` has its unit and, for counters, `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def sample(self, value: float | HistogramValue, **labels: str) -> Sample:
        """Return a sample of this metric.

        Raises:
            ValueError: the labels are not exactly those declared in the catalogue.
        """
        if len(labels) != len(self.labels) or any(name not in labels for name in self.labels):
            raise ValueError(f"{self.name} takes labels {self.labels}, got {tuple(labels)}")
        return Sample(self, tuple(labels[name] for name in self.labels), value)


@dataclass(frozen=True, slots=True)
class Scrape:
    """The result of one run of one collector.

    Args:
        collector: its name in the registry.
        success: whether it finished within its deadline and had its source.
        duration_seconds: wall time of the run, or the time waited so far if it hangs.
        samples: if `success` is false, only those of the parts that could be read: other values
            are dropped, never frozen.
        failure: why `success` is false, in one sentence; empty otherwise.
        last_success_unix_seconds: end of the last successful run; None before the first.
        invalid: number of samples of this run that were left out because they were invalid.
        invalid_reason: what is wrong with the first of them; empty if there is none.
    """

    collector: str
    success: bool
    duration_seconds: float
    samples: tuple[Sample, ...]
    failure: str
    last_success_unix_seconds: float | None
    invalid: int = 0
    invalid_reason: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the agent knew about its node at one time.

    `simulated` describes the node if it is simulated, and is empty for a real one.
    """

    node: str
    taken_at_unix_seconds: float
    scrapes: tuple[Scrape, ...]
    simulated: str = ""


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """The identity of a rank; None stands for unknown, never for zero.

    Args:
        job_id: namespace/name, SLURM job id, torchelastic run id or `local/<hash>`.
        attempt: restarts that the launcher counted before this process.
        timing_source: how compute and sync were distinguished: kernel, wall, host, sampled or none.
        alive: whether the training process still holds its ring.
        dp_group: ranks that reduce the same gradient shard, pp_stage * TP + t.
        tp_group: ranks that share a layer, pp_stage * DP + d.
        pp_stage: pipeline stage.
        torch_version: of the process, empty if unknown; likewise the probe's.
        pod_namespace: of the rank's pod, according to Kubernetes; empty outside of pods.
        gpu_uuid: of the GPU that it trains on, as its process says, without a prefix such as GPU-.
    """

    job_id: str
    rank: int
    node: str
    local_rank: int | None
    world_size: int | None
    local_world_size: int | None
    attempt: int
    timing_source: str
    launcher: str
    pod_uid: str
    pid: int
    alive: bool
    dp_group: int | None = None
    tp_group: int | None = None
    pp_stage: int | None = None
    torch_version: str = ""
    probe_version: str = ""
    pod_namespace: str = ""
    clock_ahead_seconds: float | None = None
    gpu_uuid: str = ""

    def left(self, world_size: int | None) -> bool:
        """Return True if the rank has left for good, given the job's current number of ranks."""
        if world_size is None or world_size == self.world_size:
            return False
        return self.rank >= world_size


MAX_STEP_ROWS = 8 * 65_536
"""Maximum rows of one answer: the contents of the rings of eight ranks."""

STEP_COLUMNS: tuple[str, ...] = (
    "job_id",
    "step",
    "rank",
    "node",
    "gpu",
    "t_start_unix_seconds",
    "step_seconds",
    "data_seconds",
    "compute_seconds",
    "sync_seconds",
    "dp_group",
    "tp_group",
    "pp_stage",
    "attempt",
    "samples",
    "flags",
    "timing_source",
    "cpu_wait_seconds",
    "other_seconds",
    "microbatches",
    "checkpoint_seconds",
    "evaluation_seconds",
    "copies_seconds",
    "host_late_seconds",
    "loader_seconds",
)
"""Columns of a step record on the wire: those of the trace contract, between job and extras.

If `other_seconds` is known, data, compute, sync, other and CPU wait add up to the step; if not,
compute includes other. `microbatches` is the number of backward passes in the step. The two columns
after it are the parts of other spent in checkpoints and evaluations that the probe marks. During
`copies_seconds` of compute, the device's training stream waited for copies on other streams; for at
most `host_late_seconds` it had no work queued; both are known if `timing_source` is `sampled`.
`loader_seconds` is the time that the worker processes of the input loader, running in parallel,
need for the batches of a step, whether or not the step waits for them; it is unknown for a loader
without workers.
"""

StepRow = tuple[str | int | float | None, ...]
"""One step of one rank, in the order of `STEP_COLUMNS`; None stands for not measured."""

FLAG_CLOSURE = 1 << 2  # forward and backward ran inside optimizer.step()
FLAG_SKIPPED = 1 << 3  # the gradient scaler skipped the update
FLAG_EVALUATION = 1 << 4  # batches were fetched without gradients during this step
FLAG_FIRST = 1 << 5  # first record of its process: includes start-up work
FLAG_CPU_WAIT = 1 << 6  # data and compute exclude time in which the thread waited for a CPU
FLAG_SAMPLED = 1 << 7  # compute and sync are measured only in some steps of this process


SPAN_COLUMNS: tuple[str, ...] = (
    "job_id",
    "rank",
    "node",
    "attempt",
    "kind",
    "t_start_unix_seconds",
    "seconds",
    "blocked_seconds",
    "bytes",
    "step",
    "outcome",
    "beside_training",
    "after_sigterm",
    "in_memory",
    "target",
)
"""Columns of a span on the wire: what a rank did besides steps, such as writing a checkpoint.

`seconds` is null while it is open; `blocked_seconds` is the time it took from the current step.
`step` is the last step that ended before it. `target` is a checksum of the path, by which ranks
that write to the same path are recognised. `kind` is one of `SPAN_KINDS`, `outcome` one of
`SPAN_OUTCOMES`.
"""

SPAN_KINDS = (
    "checkpoint_save",
    "checkpoint_load",
    "checkpoint_staging",
    "evaluation",
    "compile",
    "rendezvous",
)
SPAN_OUTCOMES = ("open", "done", "failed", "interrupted")
"""Interrupted means that the process exited without writing the end of the span."""

SpanRow = tuple[str | int | float | bool | None, ...]
"""One span of one rank, in the order of `SPAN_COLUMNS`; None stands for unknown."""


class SpanSource(Protocol):
    """Provides what ranks did besides steps."""

    def spans(self, jobs: Jobs, since_unix_seconds: float) -> Iterator[SpanRow]:
        """Yield spans that began at or after a time or are still open, oldest first per rank."""
        ...


@dataclass(frozen=True, slots=True)
class RingHead:
    """A ring whose records are read from a record number on, or from a time on.

    Args:
        name: of the file; another file of the same rank has another name.
        identity: of the rank that writes it.
        next_number: of the record with which reading starts.
        whole: whether it is read from a time on because its reader does not follow it yet.
    """

    name: str
    identity: RankIdentity
    next_number: int
    whole: bool


@dataclass(frozen=True, slots=True)
class RingBatch:
    """Consecutive records of one ring.

    Args:
        ring: its index among the rings that are read.
        rows: possibly none.
        next_number: of the record after them.
    """

    ring: int
    rows: Sequence[StepRow]
    next_number: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Older records of a rank that did not fit into an answer.

    Args:
        until_unix_seconds: when the newest of their steps began.
    """

    job_id: str
    rank: int
    until_unix_seconds: float


@dataclass(frozen=True, slots=True)
class FreshSteps:
    """Rings, and their records while they are read; `left_out` grows during reading."""

    rings: tuple[RingHead, ...]
    batches: Iterator[RingBatch]
    left_out: Sequence[LeftOut] = ()


class StepSource(Protocol):
    """Provides the ranks that run on this node and their step records."""

    def ranks(self) -> tuple[RankIdentity, ...]:
        """Return the ranks seen by the last scan, including ended ones as long as they are kept."""
        ...

    def steps(
        self,
        jobs: Jobs,
        since_unix_seconds: float,
        leave_out: Callable[[LeftOut], None] | None = None,
    ) -> Iterator[StepRow]:
        """Yield the records of steps that began at or after a time, oldest first per rank.

        `leave_out` is called during iteration for each rank whose older records did not fit.
        """
        ...

    def starts(self, jobs: Jobs, before_unix_seconds: float) -> Iterator[StepRow]:
        """Yield the first records of each process of each rank, of steps before a time."""
        ...

    def fresh(
        self, jobs: Jobs, since_unix_seconds: float, cursors: Mapping[str, int]
    ) -> FreshSteps:
        """Return records from the given numbers on; of rings not followed, from a time on."""
        ...
