"""The values exchanged by collectors, exposition, API and analyzers.

This module is part of the agent's contract: it needs the standard library alone and holds no
behaviour beyond checking itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rankscope_agent.contract.shards import Jobs

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """Cumulative bucket counts, as Prometheus wants them.

    Args:
        buckets: pairs of (upper bound, observations <= that bound), bounds rising, without +Inf.
        count: all observations, which is the +Inf bucket.
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
    """A metric as the catalogue declares it; `name` carries unit and, for counters, `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def sample(self, value: float | HistogramValue, **labels: str) -> Sample:
        """Give a sample of this metric.

        Raises:
            ValueError: the labels are not exactly those that the catalogue declares.
        """
        if len(labels) != len(self.labels) or any(name not in labels for name in self.labels):
            raise ValueError(f"{self.name} takes labels {self.labels}, got {tuple(labels)}")
        return Sample(self, tuple(labels[name] for name in self.labels), value)


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one run of one collector gave.

    Args:
        collector: its name in the registry.
        success: it ran to its end within its deadline and had its source.
        duration_seconds: wall time of the run, or the time waited so far when it hangs.
        samples: empty when `success` is false: values are dropped, never frozen.
        failure: why `success` is false, as one sentence; empty otherwise.
        last_success_unix_seconds: end of the last successful run, None before the first.
        invalid: samples of this run that cannot stand on a page and were left out.
        invalid_reason: what is wrong with the first of them, empty if there is none.
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
    """Everything the agent knew about its node at one moment.

    `simulated` says which node is made up, and is empty for the real one.
    """

    node: str
    taken_at_unix_seconds: float
    scrapes: tuple[Scrape, ...]
    simulated: str = ""


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """Who a rank is; None stands for unknown, never for zero.

    Args:
        job_id: namespace/name, SLURM job id, torchelastic run id or `local/<hash>`.
        attempt: restarts that the launcher counted before this process.
        timing_source: how compute and sync were distinguished: kernel, wall, host or none.
        alive: the training process still holds its ring.
        dp_group: ranks that reduce the same gradient shard, pp_stage * TP + t.
        tp_group: ranks that share a layer, pp_stage * DP + d.
        pp_stage: pipeline stage.
        torch_version: of the process, empty if unknown; likewise the probe's.
        pod_namespace: of the pod that it runs in, as Kubernetes has it; empty outside of pods.
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

    def left(self, world_size: int | None) -> bool:
        """Return True if the rank is gone for good from a job that now has this many ranks."""
        if world_size is None or world_size == self.world_size:
            return False
        return self.rank >= world_size


MAX_STEP_ROWS = 8 * 65_536
"""Rows in one answer: what the rings of eight ranks hold."""

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

Where `other_seconds` is known, data, compute, sync, other and CPU wait add up to the step; where it
is not, compute holds what it would. `microbatches` counts the backward passes of the step. What of
other was in checkpoints and evaluations that the probe marks is in the two columns behind. Of
compute, the device's training stream stood `copies_seconds` at copies of other streams, and had no
work queued for `host_late_seconds` at most; both are known where `timing_source` is `sampled`.
The worker processes of its input loader need, side by side, `loader_seconds` for the batches of a
step, whether it waits for them or not; not known of a loader without workers.
"""

StepRow = tuple[str | int | float | None, ...]
"""One step of one rank, in the order of `STEP_COLUMNS`; None stands for not measured."""

FLAG_CLOSURE = 1 << 2  # forward and backward ran inside optimizer.step()
FLAG_SKIPPED = 1 << 3  # the gradient scaler skipped the update
FLAG_EVALUATION = 1 << 4  # batches were fetched without gradients during this step
FLAG_FIRST = 1 << 5  # first record of its process: holds start-up work
FLAG_CPU_WAIT = 1 << 6  # data and compute hold no time in which the thread waited for a CPU
FLAG_SAMPLED = 1 << 7  # compute and sync are measured in some steps of this process only


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
"""Columns of a span on the wire: what a rank did beside steps, such as writing a checkpoint.

`seconds` is null while it is open; `blocked_seconds` is what the step under way lost to it. `step`
is the last one that ended before. `target` is a checksum of the path, by which ranks that write to
one place are found. `kind` is one of `SPAN_KINDS`, `outcome` one of `SPAN_OUTCOMES`.
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
"""Interrupted means that its process has ended and its end was not written."""

SpanRow = tuple[str | int | float | bool | None, ...]
"""One span of one rank, in the order of `SPAN_COLUMNS`; None stands for unknown."""


class SpanSource(Protocol):
    """Who can say what ranks did beside steps."""

    def spans(self, jobs: Jobs, since_unix_seconds: float) -> Iterator[SpanRow]:
        """Yield spans that began at or after a moment or are open, oldest first per rank."""
        ...


@dataclass(frozen=True, slots=True)
class RingHead:
    """A ring of which records are read on from a number, or anew.

    Args:
        name: of the file: another one of the same rank has another name.
        identity: who writes it.
        next_number: of the record from which on it is read.
        whole: it is read from a moment on, as its reader does not follow it yet.
    """

    name: str
    identity: RankIdentity
    next_number: int
    whole: bool


@dataclass(frozen=True, slots=True)
class RingBatch:
    """Records of one ring that follow one another.

    Args:
        ring: its place among those that are read.
        rows: may be none.
        next_number: of the record behind them.
    """

    ring: int
    rows: Sequence[StepRow]
    next_number: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Older records of a rank, for which an answer had no room.

    Args:
        until_unix_seconds: when the newest one of their steps began.
    """

    job_id: str
    rank: int
    until_unix_seconds: float


@dataclass(frozen=True, slots=True)
class FreshSteps:
    """Rings, and their records as they are read; `left_out` grows meanwhile."""

    rings: tuple[RingHead, ...]
    batches: Iterator[RingBatch]
    left_out: Sequence[LeftOut] = ()


class StepSource(Protocol):
    """Who can say which ranks run on this node and hand out their step records."""

    def ranks(self) -> tuple[RankIdentity, ...]:
        """Return the ranks seen at the last look, ended ones included while they are kept."""
        ...

    def steps(
        self,
        jobs: Jobs,
        since_unix_seconds: float,
        leave_out: Callable[[LeftOut], None] | None = None,
    ) -> Iterator[StepRow]:
        """Yield the records of steps that started at or after a moment, oldest first per rank.

        `leave_out` is told, meanwhile, of which ranks older ones had no room.
        """
        ...

    def starts(self, jobs: Jobs, before_unix_seconds: float) -> Iterator[StepRow]:
        """Yield the first records of each process of each rank, of steps before a moment."""
        ...

    def fresh(
        self, jobs: Jobs, since_unix_seconds: float, cursors: Mapping[str, int]
    ) -> FreshSteps:
        """Return the records from a number on, of rings that are not followed from a moment on."""
        ...
