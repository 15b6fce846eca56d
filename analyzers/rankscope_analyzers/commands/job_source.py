"""The source of running jobs for `rankscope watch`, and what it keeps of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.contract.shards import WHOLE, Shard
from rankscope_analyzers.captures.kept import HangCaptures
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.goodput import model_work
from rankscope_analyzers.hangs.threshold import HANG_AFTER_SECONDS
from rankscope_analyzers.runs.files import RunRecordFiles
from rankscope_analyzers.stragglers.diagnosis import Follower
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.tracing.traces import Traces
from rankscope_analyzers.tracking.runs import Runs
from rankscope_analyzers.watch import process_starts
from rankscope_analyzers.watch.announcer import Announcer
from rankscope_analyzers.watch.canaries import Canaries
from rankscope_analyzers.watch.cluster_jobs import ClusterJobs
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.goodput import Goodput
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.node_publisher import NodePublisher
from rankscope_analyzers.watch.step_series import StepLook

READS: tuple[Metric, ...] = (*process_starts.READS, *model_work.READS)
"""Series that are read in addition to those of reports."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What the last evaluation of all jobs exported: reports, and series about itself.

    Args:
        unread: step records that could not be read, as sentences.
    """

    reports: Sequence[JobReport] = ()
    extra: Sequence[Sample] = ()
    unread: tuple[str, ...] = ()


@dataclass(slots=True)
class JobSource:
    """The source of running jobs.

    Args:
        read: reads them. Raises SourceError if nothing can be read, and ClusterError if the agents
            of the cluster are not known.
        records: where records of runs are written, None if they are not.
        followed: the state of jobs from poll to poll; None to judge each poll separately.
        memory: saves all that across restarts.
        hang_after_seconds: least time without a step after which a job is called hung.
        cluster_jobs: the job objects of the cluster, None if they are not followed.
        nodes: publishes findings on nodes, None if that is not wanted.
        captures: saves what is known of hung jobs, None if that is off.
        goodput: the accounts of jobs' GPU time.
        sums: saves these across restarts, at each look.
        announcer: announces changes.
        canaries: separates reports on the canary from those on jobs.
        traces: sends ended parts of jobs, None if that is not wanted.
        tracking: logs jobs as runs of MLflow, None likewise.
        timing: judges jobs by new records if these are streamed; default: `followed`.
        exported: what the last evaluation exported.
        shard: the jobs that are followed; other watches follow the others.
        step_look: the last look for new steps, None if these are not streamed.
    """

    read: Callable[[], Gathered]
    records: RunRecordFiles | None = None
    followed: FollowedJobs | None = field(default_factory=FollowedJobs)
    memory: Memory = field(default_factory=lambda: Memory(None, log))
    hang_after_seconds: float = HANG_AFTER_SECONDS
    cluster_jobs: ClusterJobs | None = None
    nodes: NodePublisher | None = None
    captures: HangCaptures | None = None
    goodput: Goodput = field(default_factory=lambda: Goodput(HANG_AFTER_SECONDS))
    sums: Memory = field(default_factory=lambda: Memory(None, log))
    announcer: Announcer = field(default_factory=lambda: Announcer(log))
    canaries: Canaries = field(default_factory=Canaries)
    traces: Traces | None = None
    tracking: Runs | None = None
    timing: Follower | None = None
    exported: Exported = field(default_factory=Exported)
    shard: Shard = WHOLE
    step_look: StepLook | None = None

    def own(self, gathered: Gathered) -> Gathered:
        """Return what was read, without step records of jobs that other watches follow."""
        jobs = tuple(one for one in gathered.jobs if self.shard.has(one.job_id))
        return gathered if self.shard.total == 1 else replace(gathered, jobs=jobs)

    def tell(self, exporter: FindingsExporter, now: float) -> None:
        """Announce what changed in the last export, once the saved state is known.

        Args:
            exporter: knows which incidents opened, changed or ended, and which jobs are gone.
            now: Unix time.
        """
        awaited = self.memory.awaited
        events = exporter.events if awaited else self.announcer.news(exporter.events)
        self.goodput.note_events(events, now)
        if not awaited:
            self.announcer.tell(events, self.exported.reports, now, exporter.is_gone)

    def close_exporters(self) -> None:
        """Send what waits for other systems: the watch ends."""
        for exporter in (self.traces, self.tracking):
            if exporter is not None:
                exporter.close()

    def stand_by(self) -> None:
        """Discard the state, which another leader continues."""
        self.exported = Exported()
        self.memory.forget()
        self.sums.forget()
        self.goodput.stand_by()
        self.announcer.forget()
        self.canaries.stand_by()
        if self.traces:
            self.traces.stand_by()
        if self.cluster_jobs is not None:
            self.cluster_jobs.stand_by()
        if self.nodes:
            self.nodes.forget()


def log(text: str) -> None:
    """Write a sentence to the watch's own log."""
    sys.stderr.write(f"rankscope watch: {text}\n")
    sys.stderr.flush()
