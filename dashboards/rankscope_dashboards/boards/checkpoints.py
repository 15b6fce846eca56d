"""The dashboard of one job's checkpoints and learning: is it safe from a failure, does it learn?"""

from __future__ import annotations

from rankscope_agent.contract.metrics import reported, training
from rankscope_dashboards.boards import filesystems, learning
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.expressions.queries import (
    FEW,
    JOB,
    MANY,
    NODE,
    RANK,
    job_nodes,
    largest,
    largest_rates,
    of,
)
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.dashboard import Dashboard, arrange
from rankscope_dashboards.parts.fields import colored, columns, numbered, override
from rankscope_dashboards.parts.panels import (
    BAD,
    GOOD,
    WARN,
    Panel,
    Stat,
    Table,
    TimeSeries,
    now,
    rows,
    targets,
)
from rankscope_dashboards.parts.thresholds import ANY_IS_BAD

NO_CHECKPOINT = "no checkpoint was written, or no probe marks them"

NAME = "{{cluster}}"

FREE_SHARE = ((None, BAD), (0.05, WARN), (0.3, GOOD))
"""As in `RankscopeCheckpointStoreFilling`."""

DAY = 86400
TIME_TO_FULL = ((None, BAD), (DAY, WARN), (7 * DAY, GOOD))
"""Seconds: the alert fires at a day."""

SAVING = ((None, GOOD), (0.1, WARN), (0.25, BAD))
"""Fraction of time: `rankscope diagnose` mentions a tenth, and a quarter is a finding."""


def dashboard(runbooks: str) -> Dashboard:
    """Return the dashboard.

    Args:
        runbooks: address at which docs/runbooks is served.
    """
    return Dashboard(
        uid=links.CHECKPOINTS,
        title="Rankscope / Checkpoints and learning",
        description="One job: whether it would survive a failure now, whether it learns, and how"
        " the file systems under it do.",
        variables=shared.of_a_job(),
        marks=shared.marks_of_a_job(),
        links=links.views(links.CHECKPOINTS),
        refresh="1m",
        since="now-6h",
        panels=arrange(
            [
                ("If it failed now", [*_numbers(runbooks), *_writes(runbooks)]),
                ("Learning", learning.losses(runbooks)),
                ("Throughput", learning.throughput(runbooks)),
                ("File systems of the job's nodes", filesystems.panels(runbooks)),
            ]
        ),
    )


def _numbers(runbooks: str) -> list[Panel]:
    cluster = by()
    last = of(training.CHECKPOINT_LAST_SUCCESS, JOB)
    steps, saved = of(training.LAST_STEP, JOB), of(reported.CHECKPOINT_STEP, JOB)
    failing = links.runbook(runbooks, "RankscopeCheckpointFailing")
    failures = of(training.CHECKPOINT_WRITE_FAILURES, JOB)
    return [
        Stat(
            title="Last save",
            description="How long ago a rank of the job finished a good checkpoint file.",
            unit="s",
            targets=now((f"time() - max {cluster} ({last})", NAME)),
            missing=NO_CHECKPOINT,
            briefly="none",
            links=[links.runbook(runbooks, "RankscopeCheckpointOverdue")],
        ),
        Stat(
            title="Steps at risk",
            description="Steps since the newest good checkpoint: what a failure now would cost.",
            unit="locale",
            targets=now((f"max {cluster} ({steps}) - max {cluster} ({saved})", NAME)),
            decimals=0,
            missing=NO_CHECKPOINT,
            briefly="no saves",
        ),
        Stat(
            title="Failed writes",
            description="Checkpoint files whose writing raised or was cut off, in the time range.",
            targets=now((f"sum {cluster} (increase({failures}[$__range]))", NAME)),
            steps=ANY_IS_BAD,
            decimals=0,
            missing=NO_CHECKPOINT,
            briefly="no saves",
            links=[failing],
        ),
        *_store_numbers(runbooks),
    ]


def _store_numbers(runbooks: str) -> list[Panel]:
    cluster = by()
    free, size = of(reported.STORE_FREE, JOB), of(reported.STORE_SIZE, JOB)
    shrinks = f"(-deriv({free}[$__range]) > 0)"
    filling = links.runbook(runbooks, "RankscopeCheckpointStoreFilling")
    return [
        Stat(
            title="Room left",
            description="Free share of the file system of the newest checkpoint, as the rank that"
            " wrote it read it.",
            unit="percentunit",
            targets=now((f"min {cluster} ({free} / {size})", NAME)),
            steps=FREE_SHARE,
            missing=NO_CHECKPOINT,
            briefly="no saves",
            links=[filling],
        ),
        Stat(
            title="Full in",
            description="Time until that file system is full at the pace of the time range.",
            unit="s",
            targets=now((f"min {cluster} ({free} / {shrinks})", NAME)),
            steps=TIME_TO_FULL,
            missing="free space does not fall, or no checkpoint was written",
            briefly="not falling",
            links=[filling],
        ),
        Stat(
            title="Checkpoints kept",
            description="Checkpoints in the directory of the newest one when that was written,"
            " including itself.",
            targets=now((f"max {cluster} ({of(reported.CHECKPOINTS_KEPT, JOB)})", NAME)),
            decimals=0,
            missing=NO_CHECKPOINT,
            briefly="no saves",
        ),
    ]


def _writes(runbooks: str) -> list[Panel]:
    failing = links.runbook(runbooks, "RankscopeCheckpointFailing")
    return [
        TimeSeries(
            title="How long a checkpoint file takes",
            description="Duration of the newest finished checkpoint file of each rank; the"
            f" {FEW} slowest. A rank whose line is above the others has slow access to storage.",
            unit="s",
            minimum=0,
            targets=targets(
                (largest(FEW, of(training.CHECKPOINT_LAST_WRITE, RANK), "rank"), "rank {{rank}}")
            ),
            overrides=numbered("rank "),
            several=True,
            missing=NO_CHECKPOINT,
            links=[links.runbook(runbooks, "RankscopeSlowStorage")],
        ),
        TimeSeries(
            title="Share of time taken by saving",
            description="Share of time in which a rank could take no step as it saved a checkpoint;"
            f" the {FEW} ranks that save longest. Saving concurrently with training is not"
            " included.",
            unit="percentunit",
            minimum=0,
            targets=targets(
                (largest_rates(FEW, of(training.CHECKPOINT_BLOCKED, RANK), "rank"), "rank {{rank}}")
            ),
            overrides=numbered("rank "),
            several=True,
            steps=SAVING,
            missing=NO_CHECKPOINT,
        ),
        _files(runbooks),
        _age(runbooks),
        _events(failing),
    ]


def _files(runbooks: str) -> Panel:
    counted = {
        "written": training.CHECKPOINT_WRITES,
        "failed": training.CHECKPOINT_WRITE_FAILURES,
        "loaded": reported.CHECKPOINT_LOADS,
        "failed to load": reported.CHECKPOINT_LOAD_FAILURES,
        "written after SIGTERM": reported.CHECKPOINT_EMERGENCY,
    }
    return TimeSeries(
        title="Checkpoint files",
        description="Files that all ranks together wrote or loaded, and those that failed; what"
        " was written after SIGTERM is counted apart as well.",
        minimum=0,
        at_least=4,
        decimals=0,
        targets=targets(
            *(
                (f"sum(increase({of(metric, JOB)}[$__rate_interval]))", name)
                for name, metric in counted.items()
            )
        ),
        overrides=colored(tuple(counted)),
        missing=NO_CHECKPOINT,
        links=[links.runbook(runbooks, "RankscopeCheckpointCorrupt")],
        width=8,
    )


def _age(runbooks: str) -> Panel:
    last = of(training.CHECKPOINT_LAST_SUCCESS, JOB)
    return TimeSeries(
        title="Age of the last good checkpoint",
        description="How much training a failure would have cost at each time: it falls to zero"
        " with each good checkpoint. The objective is that of the agents, if they have one.",
        unit="s",
        minimum=0,
        targets=targets(
            (f"time() - max({last})", "age"),
            (f"max({job_nodes(of(reported.CHECKPOINT_OBJECTIVE, NODE))})", "objective"),
        ),
        overrides=colored(("age", "objective")),
        missing=NO_CHECKPOINT,
        links=[links.runbook(runbooks, "RankscopeCheckpointOverdue")],
        width=8,
    )


def _events(link: tuple[str, str]) -> Panel:
    newest = worst(of(reported.TRAINING_EVENT, RANK), "rank", "event")
    return Table(
        title="Latest training events",
        description="How long ago ranks were started again, checkpoints failed or were written by"
        " several ranks, losses were not finite, loader workers died or CUDA memory was exhausted.",
        unit="string",
        targets=rows(f"bottomk({MANY}, time() - {newest})"),
        transformations=columns(
            {**shared.CLUSTER_COLUMN, "rank": "rank", "event": "event", "Value": "ago"}
        ),
        overrides=[override("ago", {"unit": "s"})],
        widths={"rank": 60},
        missing="no events, or no probe reports them",
        links=[link],
        width=8,
    )
