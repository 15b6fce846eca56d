"""The data that criteria judge: a job's report, the series of its nodes, NCCL's logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rankscope_agent.contract.metrics import pods, rdma, training
from rankscope_agent.contract.model import Metric
from rankscope_agent.contract.nccl.facts import Facts
from rankscope_analyzers.checkpoints.directory_report import DirectoryReport
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers import earlier_ranks, other_jobs
from rankscope_analyzers.layers.job_view import JobView, job_view
from rankscope_analyzers.layers.rank_locations import by_rank
from rankscope_analyzers.verification import nccl_readings
from rankscope_analyzers.verification.nccl_readings import NcclReading

READS: tuple[Metric, ...] = (
    *nccl_readings.READS,
    training.CHECKPOINT_WRITES,
    training.CHECKPOINT_WRITE_FAILURES,
    training.CHECKPOINT_LAST_SUCCESS,
    pods.RANK_STARTED,
)
"""Series that criteria need in addition to those of reports."""

Transport = Literal["auto", "rdma", "gpudirect", "sockets"]

PORT_ACTIVE = 4


@dataclass(frozen=True, slots=True)
class Settings:
    """What is expected of the job.

    Args:
        world_size: its ranks, None to accept the size that the ranks report.
        step_seconds: a step's usual duration, None without an expectation.
        utilization: least share of time in which each GPU must run kernels, 0 to 1.
        transport: how data must go between nodes; `auto` is the fastest that the nodes have.
        required: criteria that must apply.
    """

    world_size: int | None
    step_seconds: float | None
    utilization: float
    transport: Transport
    required: frozenset[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read about one job.

    Args:
        report: from `rankscope diagnose`.
        observed: series of its nodes.
        nccl: what NCCL logged, by pod or log.
        settings: what is expected.
        unread: what could not be read, as sentences; absent data may be there.
        checkpoints: the content of the directory of checkpoints, why it cannot be listed, or None
            if none was given.
    """

    report: JobReport
    observed: Observed
    nccl: Sequence[NcclReading]
    settings: Settings
    unread: Sequence[str] = field(default_factory=tuple)
    checkpoints: DirectoryReport | str | None = None

    @property
    def ranks(self) -> frozenset[int]:
        """Return the ranks that are known, by series or by step records."""
        frame = self.report.frame
        known = frozenset(self.report.locations) | frozenset(frame.ranks.tolist() if frame else ())
        return known - self._earlier

    @property
    def gpu_ranks(self) -> Mapping[int, str]:
        """Return the UUIDs of the GPUs that ranks use, by rank."""
        located, earlier = self.report.locations, self._earlier
        return {rank: one.uuid for rank, one in located.items() if one.uuid and rank not in earlier}

    def of_ranks(self, metric: Metric) -> Mapping[int, Series]:
        """Return the series of a metric for each rank, of the node that has it now."""
        return by_rank(self.observed, metric, self.report.job_id)

    @property
    def ended(self) -> frozenset[int]:
        """Return the ranks of which no process lives any longer on the node that has them."""
        alive = self.of_ranks(training.RANK_ALIVE)
        return frozenset(rank for rank, one in alive.items() if not one.last) - self._earlier

    def sizes(self) -> frozenset[int]:
        """Return the world sizes that living processes report, or else that of the step records."""
        living = earlier_ranks.sizes_by_rank(self.observed, self.report.job_id)
        named, frame = frozenset(size for _, size in living if size), self.report.frame
        return named or frozenset((frame.world_size,) if frame else ())

    @property
    def _earlier(self) -> frozenset[int]:
        return earlier_ranks.earlier_ranks(self.observed, self.report.job_id)


def evidence(
    report: JobReport,
    observed: Observed,
    settings: Settings,
    logs: tuple[Facts, Sequence[str]] | None,
    unread: Sequence[str],
) -> Evidence:
    """Return a job's evidence.

    Args:
        report: of the job.
        observed: series of all nodes that were read.
        settings: what is expected.
        logs: facts of NCCL's logs and the files' names, which then replace agents' pages.
        unread: what could not be read, as sentences.
    """
    view = job_view(report.job_id, report.locations)
    nodes = view.nodes | {one.node for one in earlier_ranks.processes(observed, report.job_id)}
    here = observed.on(nodes) if nodes else observed
    view = replace(view, others=other_jobs.outside_of_pods(here, report.job_id))
    return Evidence(report, here, tuple(_nccl(here, view, logs)), settings, unread)


def _nccl(
    observed: Observed, view: JobView, logs: tuple[Facts, Sequence[str]] | None
) -> Iterator[NcclReading]:
    if logs is None:
        yield from nccl_readings.of_series(observed, view)
        return
    states = [series.last for series in observed.of(rdma.PORT_STATE)]
    rdma_up = not states or any(state >= PORT_ACTIVE for state in states)
    yield nccl_readings.of_logs(*logs, rdma=rdma_up)
