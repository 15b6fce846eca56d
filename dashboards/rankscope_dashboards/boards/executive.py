"""The executive dashboard: how much GPU time was lost, to what, and how many GPUs are in use."""

from __future__ import annotations

from rankscope_agent.contract.metrics import (
    agent,
    goodput,
    job_logs,
    pods,
    summary,
    watch,
)
from rankscope_analyzers.fusion.causality import KINDS
from rankscope_analyzers.goodput import parts
from rankscope_dashboards.boards import computing, costs, failures, gpus_now, job_ends
from rankscope_dashboards.expressions.joins import join, one_of, stated
from rankscope_dashboards.expressions.promql import LOG_POD, by, worst
from rankscope_dashboards.expressions.queries import (
    CLUSTER,
    FEW,
    MANY,
    of,
    whole,
    with_clusters,
)
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.dashboard import Dashboard, arrange
from rankscope_dashboards.parts.fields import colored, columns, override
from rankscope_dashboards.parts.panels import (
    BAD,
    GOOD,
    WARN,
    BarGauge,
    Panel,
    Stat,
    Table,
    TimeSeries,
    now,
    rows,
    targets,
)
from rankscope_dashboards.parts.thresholds import ANY_IS_ODD, LOST_SHARE

DAY = "1d"
"""Window of smoothed trends: with a shorter one, every night shows."""

GOOD_SHARE = ((None, BAD), (0.8, WARN), (0.95, GOOD))
"""Fractions of GPU time: the published runs of large clusters achieve 80 to 98 percent."""

SPENT = of(goodput.PROJECT_GPU_SECONDS, CLUSTER)


def _of_parts(*names: str) -> str:
    matcher = "|".join(names)
    return of(goodput.PROJECT_GPU_SECONDS, CLUSTER, f'part=~"{matcher}"')


SEEN = of(goodput.PROJECT_GPU_SECONDS, CLUSTER, f'part!="{parts.UNOBSERVED}"')
STARTS = of(goodput.PROJECT_START_GPU_SECONDS, CLUSTER)
UNACCOUNTED = of(goodput.UNACCOUNTED_JOBS, CLUSTER)
LOST = of(watch.LOST_GPU_SECONDS, CLUSTER)


def dashboard(runbooks: str) -> Dashboard:
    """Return the dashboard.

    Args:
        runbooks: address at which docs/runbooks is served.
    """
    return Dashboard(
        uid=links.EXECUTIVE,
        title="Rankscope / Executive",
        description="GPU time lost by training jobs, by cause and owner, and how many GPUs"
        " are in use.",
        variables=[shared.data_source(), shared.cluster()],
        marks=[],
        links=links.views(links.EXECUTIVE),
        refresh="5m",
        since="now-30d",
        panels=arrange(
            [
                ("GPU time", [*_numbers(), *_lost(runbooks)]),
                ("Whose time", _whose()),
                ("What GPUs compute", computing.panels()),
                ("What it costs", costs.panels(runbooks)),
                ("How jobs end", job_ends.panels(runbooks)),
                ("What fails", failures.panels(runbooks)),
                ("GPUs now", gpus_now.panels(runbooks)),
            ]
        ),
    )


def _hours(selector: str, labels: str = "") -> str:
    return f"sum{labels} (increase({selector}[$__range])) / 3600"


def _numbers() -> list[Panel]:
    training_now = f"sum {by('job_id')} ({of(summary.JOB_RANKS_ALIVE, CLUSTER)})"
    agents = of(agent.BUILD_INFO, CLUSTER)
    return [
        Stat(
            title="GPU-hours held",
            description="GPU time that jobs held in the time range while rankscope watch was"
            " watching, whatever they did with it.",
            unit="short",
            targets=now((_hours(SPENT), "")),
            decimals=1,
            missing="no watch is scraped that reads any data",
            briefly="no watch",
        ),
        Stat(
            title="GPU-hours lost",
            description="GPU time lost to hangs, restarts and the steps that they repeat, slow"
            " ranks, input and exchange, and GPUs held while others were missing. Start-up,"
            " checkpoints, evaluations and idle time are overhead, and not included.",
            unit="short",
            targets=now((_hours(_of_parts(*parts.FAULTS)), "")),
            decimals=1,
            missing="no watch is scraped that reads any data",
            briefly="no watch",
        ),
        Stat(
            title="Goodput",
            description="Productive GPU time, steps that were kept at the speed of undisturbed"
            " ones, over all that was observed.",
            unit="percentunit",
            targets=now((f"{_hours(_of_parts(parts.PRODUCTIVE))} / ({_hours(SEEN)} > 0)", "")),
            steps=GOOD_SHARE,
            decimals=1,
            missing="rankscope watch is not scraped, or has seen no job",
            briefly="no watch",
        ),
        Stat(
            title="Jobs training now",
            description="Jobs with at least one live rank that has the probe.",
            targets=now((f"count({training_now} > 0) or 0 * count({agents})", "")),
            missing=shared.NO_AGENT,
            briefly="no agent",
        ),
        Stat(
            title="Jobs in trouble",
            description="Jobs in which rankscope watch currently sees an incident.",
            targets=now(
                (
                    f"count(max {by('job_id')} ({of(watch.FINDING_ACTIVE, CLUSTER)}))"
                    f" or 0 * sum({of(watch.WATCH_JOBS, CLUSTER)})",
                    "",
                ),
            ),
            steps=ANY_IS_ODD,
            missing="no watch is scraped that reads any data",
            briefly="no watch",
        ),
        _converging(),
    ]


def _converging() -> Panel:
    loss = of(job_logs.JOB_LOG_LOSS, CLUSTER)
    odd = of(job_logs.JOB_LOG_NONFINITE_LOSSES, CLUSTER)
    falling = _by_job(f"deriv({loss}[$__range]) < bool 0")
    broken = _by_job(f"increase({odd}[$__range]) > 0")
    return Stat(
        title="Jobs converging",
        description="Of the jobs that log a loss, the share whose loss decreased in the time"
        " range and was never infinite or NaN. It says nothing about the quality"
        " of a model.",
        unit="percentunit",
        targets=now((f"avg({falling} unless {broken} or 0 * {falling})", "")),
        steps=GOOD_SHARE,
        decimals=0,
        missing="no log with a loss",
        briefly="no loss",
    )


def _by_job(of_pods: str) -> str:
    """Return the largest value of a job's pods; a pod without a known job counts as a job."""
    known = f"last_over_time({of(summary.POD_JOB_INFO, CLUSTER)}[$__range])"
    one = one_of(worst(known, "job_id", *LOG_POD), *LOG_POD)
    of_jobs = worst(join(f"({of_pods})", LOG_POD, ("job_id",), one), "job_id")
    others = f"({of_pods}) unless on ({', '.join(('cluster', *LOG_POD))}) {one}"
    return f"({of_jobs} or {worst(others, *LOG_POD)})"


def _lost(runbooks: str) -> list[Panel]:
    most = f"topk({FEW}, sum by (cause) ({whole('increase', LOST)}))"
    every_day = f"sum by (cause) (increase({LOST}[{DAY}])) / 3600 and {most}"
    share = f"sum(rate({_of_parts(*parts.FAULTS)}[{DAY}]))"
    return [
        *_parts(),
        BarGauge(
            title="GPU-hours lost by cause",
            description="The largest losses in the time range, by the cause that `rankscope"
            " watch` found. For ongoing incidents, the on-call view shows culprit"
            " and runbook.",
            unit="short",
            minimum=0,
            decimals=2,
            targets=now((f"topk({FEW}, {_hours(LOST, ' by (cause)')})", "{{cause}}")),
            missing="no loss, or rankscope watch is not scraped",
            width=8,
        ),
        TimeSeries(
            title="GPU-hours lost a day",
            description="GPU time lost in the day before each point in time, by cause.",
            unit="short",
            minimum=0,
            stacked=True,
            targets=targets((every_day, "{{cause}}")),
            overrides=colored(tuple(KINDS)),
            missing="no loss, or rankscope watch is not scraped",
            width=8,
        ),
        TimeSeries(
            title="Share of GPU time lost",
            description="Share of the observed GPU time that was lost to faults in the day before"
            " each point in time. If it rises, see the causes to the left.",
            unit="percentunit",
            minimum=0,
            targets=targets((f"{share} / (sum(rate({SEEN}[{DAY}])) > 0)", "lost")),
            overrides=colored(["lost"]),
            steps=LOST_SHARE,
            missing="no watch is scraped that reads any data",
            links=[links.runbook(runbooks, "RankscopeStraggler")],
            width=8,
        ),
    ]


def _parts() -> list[Panel]:
    every = f"sum by (part) (increase({SPENT}[{DAY}])) / 3600"
    return [
        TimeSeries(
            title="Where GPU time went, each day",
            description="All GPU time that jobs held in the day before each point in time, in"
            " hours: productive, lost by cause, unobserved and unexplained. The parts add up"
            " (docs/goodput.md).",
            unit="short",
            minimum=0,
            stacked=True,
            targets=targets((f"{every} > 0", "{{part}}")),
            overrides=colored(tuple(parts.PARTS)),
            missing="rankscope watch is not scraped, or has seen no job",
            width=16,
        ),
        BarGauge(
            title="Where GPU time went",
            description="GPU-hours that jobs held in the time range, the largest parts first. All"
            " but the productive part is what could be won back, or was not seen.",
            unit="short",
            minimum=0,
            decimals=2,
            targets=now((f"topk({FEW}, {_hours(SPENT, ' by (part)')} > 0)", "{{part}}")),
            missing="rankscope watch is not scraped, or has seen no job",
            width=8,
        ),
        BarGauge(
            title="GPU-hours that starts took",
            description="GPU time from the start of processes, or from the last step before a"
            " restart, to the first step, by phase: before the processes, launch (from the"
            " container to the process), process (imports), rendezvous (joining the others) and"
            " first_step. unknown: no agent reported the phases.",
            unit="short",
            minimum=0,
            decimals=2,
            targets=now((f"{_hours(STARTS, ' by (phase)')} > 0", "{{phase}}")),
            missing="no job started, or rankscope watch is not scraped",
            width=18,
            height=6,
        ),
        Stat(
            title="Jobs without an account",
            description="Running jobs of which no GPU time is counted, in any panel: a watch keeps"
            " accounts of a thousand jobs. Dividing the jobs among watches (`--total-shards`)"
            " brings them back.",
            targets=now((f"sum({UNACCOUNTED})", "")),
            steps=ANY_IS_ODD,
            missing="no watch is scraped that reads any data",
            briefly="no watch",
            width=6,
            height=6,
        ),
    ]


def _whose() -> list[Panel]:
    known, bare = (
        f"last_over_time({of(pods.JOB_INFO, CLUSTER, more)}[$__range])"
        for more in ("", 'project="",class=""')
    )
    one = stated(known, bare, ("project", "class"))
    job = f"sum {by('job_id')} (increase({LOST}[$__range])) / 3600"
    owned = join(f"({job})", ("job_id",), ("project", "class"), one)
    projects = f"sum by (project) (({owned}) or on (cluster, job_id) ({job}))"
    named = f'label_replace(topk({FEW}, {projects}), "project", "none", "project", "")'
    return [
        Table(
            title="Jobs that lost most",
            description="GPU-hours lost by single jobs in the time range, with project and"
            " class if their pods have such labels. Rows link to the debug view.",
            unit="string",
            targets=rows(with_clusters(f"topk({MANY}, ({owned}) or on (cluster, job_id) ({job}))")),
            transformations=columns(
                {
                    **shared.JOB_COLUMNS,
                    "project": "project",
                    "class": "class",
                    "Value": "GPU-hours lost",
                }
            ),
            overrides=[
                override("GPU-hours lost", {"unit": "short", "decimals": 2}),
                *shared.to_debug(),
            ],
            largest_first="GPU-hours lost",
            widths={"GPU-hours lost": 150},
            missing="no loss, or rankscope watch is not scraped",
        ),
        BarGauge(
            title="GPU-hours lost by project",
            description="By the project label of the jobs' pods; `none` stands for jobs"
            " without that label and jobs outside of Kubernetes.",
            unit="short",
            minimum=0,
            decimals=2,
            targets=now((named, "{{project}}")),
            missing="no loss, or rankscope watch is not scraped",
        ),
    ]
