"""The on-call dashboard's tables of checkpoints: which failed, and how old the last good one is."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope_agent.contract.metrics import reported, training
from rankscope_agent.contract.model import Metric
from rankscope_dashboards.boards.filesystems import NO_MOUNT
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.expressions.queries import JOB, MANY, NODE, growth, of, with_clusters
from rankscope_dashboards.expressions.storage import client_seconds
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import columns, override
from rankscope_dashboards.parts.panels import Panel, Table, rows
from rankscope_dashboards.parts.thresholds import ANY_IS_BAD


def panels(runbooks: str) -> Iterator[Panel]:
    """Yield the tables."""
    alive = worst(of(training.RANK_ALIVE, JOB), "job_id", "rank")
    last = f"max {by('job_id')} ({of(training.CHECKPOINT_LAST_SUCCESS, JOB)})"
    age = f"(time() - {last}) and (sum {by('job_id')} ({alive}) > 0)"
    yield _failed(
        "Checkpoints that failed",
        "Checkpoint files whose writing raised, or was cut off by the end of its"
        " process, in the time range, by job, according to the probe.",
        training.CHECKPOINT_WRITE_FAILURES,
        "none failed, or no probe marks checkpoints",
        links.runbook(runbooks, "RankscopeCheckpointFailing"),
    )
    yield from _store(runbooks)
    yield Table(
        title="Time since the last checkpoint",
        description="How long ago a rank of a job that runs finished a checkpoint file: what"
        " would be lost if the job failed now. Absent before its first one.",
        targets=rows(with_clusters(f"topk({MANY}, {age})")),
        transformations=columns(shared.JOB_COLUMNS | {"Value": "ago"}),
        overrides=[override("ago", {"unit": "s"}), *shared.to_debug()],
        largest_first="ago",
        missing="no checkpoint was written, or no probe marks them",
        links=[links.runbook(runbooks, "RankscopeCheckpointFailing")],
        width=6,
    )
    yield _events(runbooks)
    yield _file_systems(runbooks)


def _events(runbooks: str) -> Panel:
    """Return the table of the newest events of the ranks of jobs."""
    newest = worst(of(reported.TRAINING_EVENT, JOB, 'event!="restarted"'), "job_id", "event")
    return Table(
        title="Latest training events",
        description="How long ago checkpoints failed, could not be loaded or were written by"
        " several ranks, losses were not finite, loader workers died or CUDA memory was exhausted;"
        " by job, the newest first.",
        targets=rows(with_clusters(f"bottomk({MANY}, time() - {newest})")),
        transformations=columns(shared.JOB_COLUMNS | {"event": "event", "Value": "ago"}),
        overrides=[override("ago", {"unit": "s"}), *shared.to_debug()],
        missing="no events, or no probe reports them",
        links=[links.runbook(runbooks, "RankscopeNonFiniteLoss")],
        width=12,
    )


def _file_systems(runbooks: str) -> Panel:
    """Return the table of the nodes that wait longest for a file system."""
    return Table(
        title="Slowest operations on file systems",
        description="Mean duration of an operation in the time range, by node and file system, the"
        " longest first: one node above the others has a slow way there.",
        unit="string",
        targets=rows(f"topk({MANY}, {client_seconds(NODE, '$__range')})"),
        transformations=columns(
            {
                **shared.CLUSTER_COLUMN,
                **{name: name for name in ("node", "type", "filesystem", "operation")},
                "Value": "takes",
            }
        ),
        overrides=[override("takes", {"unit": "s"})],
        largest_first="takes",
        widths={"type": 70, "takes": 90},
        missing=NO_MOUNT,
        links=[links.runbook(runbooks, "RankscopeStorageClientSlow")],
        width=12,
    )


def _store(runbooks: str) -> Iterator[Panel]:
    free = f"min {by('job_id')} ({of(reported.STORE_FREE, JOB)} / {of(reported.STORE_SIZE, JOB)})"
    yield Table(
        title="Least room for checkpoints",
        description="Free share of the file system of a job's newest checkpoint, as the rank that"
        " wrote it read it; the fullest first.",
        targets=rows(with_clusters(f"bottomk({MANY}, {free})")),
        transformations=columns(shared.JOB_COLUMNS | {"Value": "free"}),
        overrides=[override("free", {"unit": "percentunit"}), *shared.to_debug()],
        missing="no checkpoint was written, or no probe marks them",
        links=[links.runbook(runbooks, "RankscopeCheckpointStoreFilling")],
        width=6,
    )
    yield _failed(
        "Failed checkpoint loads",
        "Checkpoint files whose loading raised in the time range, by job: damaged ones,"
        " and those that do not fit the model.",
        reported.CHECKPOINT_LOAD_FAILURES,
        "all were loaded, or no probe marks checkpoints",
        links.runbook(runbooks, "RankscopeCheckpointCorrupt"),
    )


def _failed(
    title: str, description: str, metric: Metric, missing: str, link: tuple[str, str]
) -> Panel:
    """Return the table of jobs by how often a counter grew in the time range."""
    grown = f"topk({MANY}, sum {by('job_id')} ({growth(of(metric, JOB))}))"
    return Table(
        title=title,
        description=description,
        targets=rows(with_clusters(grown)),
        transformations=columns(shared.JOB_COLUMNS | {"Value": "failed"}),
        overrides=shared.to_debug(),
        largest_first="failed",
        decimals=0,
        steps=ANY_IS_BAD,
        missing=missing,
        links=[link],
        width=6,
    )
