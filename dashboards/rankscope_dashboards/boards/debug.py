"""The debug dashboard of one job: where its step time goes, the slow ranks, their hardware."""

from __future__ import annotations

from rankscope_agent.contract.metrics import starvation, training, watch
from rankscope_agent.contract.model import Metric
from rankscope_dashboards.boards import debug_gpus, debug_hardware, debug_hosts
from rankscope_dashboards.boards.debug_start import start
from rankscope_dashboards.expressions.joins import join
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.expressions.queries import (
    FEW,
    JOB,
    MANY,
    PLACE,
    RANK,
    chosen_ranks,
    findings,
    largest_rates,
    of,
    rate,
    stages,
)
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.dashboard import Dashboard, arrange
from rankscope_dashboards.parts.fields import colored, columns, numbered, override
from rankscope_dashboards.parts.panels import (
    BAD,
    GOOD,
    WARN,
    BarGauge,
    Heatmap,
    Panel,
    Stat,
    Table,
    Target,
    TimeSeries,
    now,
    rows,
    targets,
)
from rankscope_dashboards.parts.thresholds import ANY_IS_ODD, LOST_SHARE, SLOWER
from rankscope_dashboards.rules.recording_rules import QUANTILES

SYNC_SHARE = ((None, GOOD), (0.3, WARN), (0.5, BAD))
"""Fraction of step time: if half of it is waiting, ranks differ or the network is too slow."""

NOT_MEASURED = "no steps, or not measured: on NCCL the probe measures only the step and its input"


def dashboard(runbooks: str) -> Dashboard:
    """Return the dashboard.

    Args:
        runbooks: address at which docs/runbooks is served.
    """
    return Dashboard(
        uid=links.DEBUG,
        title="Rankscope / Debug",
        description="One job: where its step time goes, which ranks hold it up, and what"
        " their hardware reports.",
        variables=shared.of_a_job(),
        marks=shared.marks_of_a_job(),
        links=links.views(links.DEBUG),
        refresh="30s",
        panels=arrange(
            [
                ("The job", [*_numbers(), *_causes(runbooks), *start()]),
                ("Steps", [*_step_times(), *_step_parts(), *_what_if()]),
                ("Ranks", [*_ranks(runbooks), *_samples()]),
                ("Collectives and NCCL", debug_hardware.collectives(runbooks)),
                ("GPUs of the ranks", debug_gpus.panels(runbooks)),
                ("Network of the job's nodes", debug_hardware.network(runbooks)),
                ("The job's nodes", debug_hosts.panels(runbooks)),
            ]
        ),
    )


NAME = "{{cluster}}"
"""Shown if there are several: clusters may have jobs of the same name, which are different jobs."""


def _numbers() -> list[Panel]:
    ended = rate(of(training.STEP_LATENCY, JOB, part="_count"))
    spent = rate(of(training.STEP_LATENCY, JOB, part="_sum"))
    alive = of(training.RANK_ALIVE, JOB)
    # For a while, two agents report a rank that was restarted on another node.
    each = worst(alive, "job_id", "rank")
    cluster = by()
    held = worst(of(starvation.RANK_STOPPED, JOB), "job_id", "rank")
    stopped = f"(sum {cluster} ({held}) or 0 * sum {cluster} ({each}))"
    return [
        Stat(
            title="Ranks alive",
            description="Ranks whose process is alive. Compare with the job's world size.",
            targets=now((f"sum {cluster} ({each})", NAME)),
            missing=shared.NO_STEPS,
            briefly="no steps",
        ),
        Stat(
            title="Ranks not running",
            description="Ranks whose process has ended, or is stopped by a signal or a"
            " debugger; in a running job there should be none.",
            targets=now((f"sum {cluster} (1 - {each}) + {stopped}", NAME)),
            steps=ANY_IS_ODD,
            missing=shared.NO_STEPS,
            briefly="no steps",
        ),
        Stat(
            title="Mean step time",
            description="Mean over all ranks; in a synchronous job all ranks show the same.",
            unit="s",
            targets=now((f"sum {cluster} ({spent}) / (sum {cluster} ({ended}) > 0)", NAME)),
            missing=shared.NO_STEPS,
            briefly="no steps",
        ),
        Stat(
            title="Newest step",
            description="The highest step number that a rank has reported.",
            unit="locale",
            targets=now((f"max {cluster} ({of(training.LAST_STEP, JOB)})", NAME)),
            decimals=0,
            missing=shared.NO_STEPS,
            briefly="no steps",
        ),
        Stat(
            title="Samples per second",
            description="Samples that all ranks together take from their loaders.",
            targets=now((f"sum {cluster} ({rate(of(training.SAMPLES, JOB))})", NAME)),
            missing="no samples: the probe does not know the job's data loader",
            briefly="no samples",
        ),
        _gpu_hours_lost(),
    ]


def _gpu_hours_lost() -> Panel:
    cluster = by()
    return Stat(
        title="GPU-hours lost",
        description="GPU time that incidents took from this job in the time range.",
        unit="short",
        targets=now(
            (
                f"sum {cluster} (increase({of(watch.LOST_GPU_SECONDS, JOB)}[$__range])) / 3600"
                f" or 0 * sum {cluster} ({of(watch.JOB_UNOBSERVED, JOB)})",
                NAME,
            ),
        ),
        decimals=2,
        missing="rankscope watch does not judge this job",
        briefly="not watched",
    )


def _causes(runbooks: str) -> list[Panel]:
    return [
        Table(
            title="Incidents and culprits",
            description="What rankscope watch found in this job, and which share of a step"
            " each incident costs. `rankscope diagnose` shows the evidence.",
            unit="string",
            targets=rows(findings(JOB)),
            transformations=columns(shared.CLUSTER_COLUMN | shared.FINDING_COLUMNS),
            overrides=shared.finding_fields(runbooks),
            largest_first="step time lost",
            widths=shared.FINDING_WIDTHS,
            steps=LOST_SHARE,
            missing=shared.NO_WATCH,
            width=24,
            height=6,
        ),
    ]


def _what_if() -> list[Panel]:
    lost = worst(of(watch.FINDING_LOST_FRACTION, JOB), "kind")
    return [
        BarGauge(
            title="What-if: times as long as without",
            description="Step time divided by what it would be without the incident: 1 is"
            " full speed, 2 is half speed. Incidents overlap, so do not multiply"
            " the values.",
            unit="none",
            decimals=2,
            minimum=1,
            targets=now(
                (f"topk({FEW}, 1 / (1 - clamp_max({lost}, 0.99)))", "{{kind}} {{cluster}}")
            ),
            steps=((None, GOOD), (1.05, WARN), (1.25, BAD)),
            missing="no findings, or rankscope watch is not scraped",
            width=8,
        ),
    ]


def _step_times() -> list[Panel]:
    bucket = of(training.STEP_LATENCY, PLACE, part="_bucket")
    summed = f"sum by (le) ({rate(bucket)})"
    return [
        Heatmap(
            title="Step times",
            description="Each column is a point in time, each cell the number of steps of"
            " that duration on the selected nodes: two bands mean two kinds of"
            " steps, a rising band means a job that slows down.",
            unit="s",
            targets=[
                Target(
                    expr=f"sum by (le) (increase({bucket}[$__rate_interval]))",
                    format="heatmap",
                    legendFormat="{{le}}",
                )
            ],
            missing=shared.NO_STEPS,
        ),
        TimeSeries(
            title="Quantiles of step times",
            description="Half, 95 % and 99 % of steps were faster than this. A p99 far above"
            " p50 means single slow steps: checkpoints, host stalls, storage.",
            unit="s",
            minimum=0,
            targets=shared.quantiles(summed),
            overrides=colored(tuple(QUANTILES)),
            missing=shared.NO_STEPS,
        ),
    ]


SPANS = ("evaluation", "compile")
"""Kinds of what ranks do outside of steps, except checkpoints."""


def _step_parts() -> list[Panel]:
    steps = f"(sum({rate(of(training.STEPS, RANK))}) > 0)"
    parts = {
        "data": training.DATA_SECONDS,
        "compute": training.COMPUTE_SECONDS,
        "sync": training.SYNC_SECONDS,
        "checkpoints": training.CHECKPOINT_BLOCKED,
    }
    seconds = {name: f"sum({rate(of(metric, RANK))})" for name, metric in parts.items()}
    spans = {kind: of(training.SPAN_BLOCKED, RANK, f'kind="{kind}"') for kind in SPANS}
    seconds |= {kind: f"sum({rate(series)})" for kind, series in spans.items()}
    rest = f"sum({rate(of(training.OTHER_SECONDS, RANK))})"
    # Work outside of steps is counted when it ends, its step a moment later.
    beside = " + ".join(f"({seconds[name]} or 0 * {rest})" for name in ("checkpoints", *SPANS))
    seconds["other"] = f"clamp_min({rest} - ({beside}), 0)"
    return [
        TimeSeries(
            title="Where a step goes",
            description="Mean over the selected ranks of the time in a step spent waiting for"
            " input, computing, waiting in collectives, saving checkpoints, evaluating, compiling,"
            " and on the rest: optimizer, logging. Select a rank to see its own times.",
            unit="s",
            minimum=0,
            stacked=True,
            targets=targets(*((f"{part} / {steps}", name) for name, part in seconds.items())),
            overrides=colored(tuple(seconds)),
            missing=NOT_MEASURED,
            width=8,
        ),
        TimeSeries(
            title="Share of time in gradient sync",
            description="Share of step time spent in collectives. It increases when one rank"
            " is late and also when the network is slow: look for the rank that"
            " waits least.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            targets=targets(
                (
                    f"sum({rate(of(training.SYNC_SECONDS, RANK))})"
                    f" / (sum({rate(of(training.STEP_SECONDS, RANK))}) > 0)",
                    "sync",
                ),
            ),
            overrides=colored(["sync"]),
            steps=SYNC_SHARE,
            missing=NOT_MEASURED,
            width=8,
        ),
    ]


def _per_step(metric: Metric, chosen: str = RANK) -> str:
    """Return a rank's mean per step in the time range."""
    rank = by("job_id", "rank")
    seconds = f"sum {rank} (increase({of(metric, chosen)}[$__range]))"
    return f"{seconds} / (sum {rank} (increase({of(training.STEPS, chosen)}[$__range])) > 0)"


def _own(chosen: str = RANK) -> str:
    """Return the time that each rank needs itself; the whole step if that is unknown."""
    data, compute = training.DATA_SECONDS, training.COMPUTE_SECONDS
    known = f"({_per_step(data, chosen)}) + ({_per_step(compute, chosen)})"
    return f"({known} or {_per_step(training.STEP_SECONDS, chosen)})"


def _over_median() -> str:
    """Return by how much the chosen ranks exceed the median of all ranks of their stage."""
    staged = join(_own(JOB), ("job_id", "rank"), ("pp_stage",), stages())
    median = f"quantile {by('job_id', 'pp_stage')} (0.5, {staged})"
    over = f"({staged}) / on (cluster, job_id, pp_stage) group_left () {median} - 1"
    return chosen_ranks(over)


def _ranks(runbooks: str) -> list[Panel]:
    slowest = f"and on (cluster, job_id, rank) topk({MANY}, {_own()})"
    measures = {
        "own": _own(),
        "data": _per_step(training.DATA_SECONDS),
        "compute": _per_step(training.COMPUTE_SECONDS),
        "sync": _per_step(training.SYNC_SECONDS),
        "other": _per_step(training.OTHER_SECONDS),
        "step": _per_step(training.STEP_SECONDS),
    }
    values = {f"Value #{chr(ord('A') + index)}": name for index, name in enumerate(measures)}
    return [
        BarGauge(
            title="Time over the median of the stage",
            description="How much longer a rank computes and loads data than the median of its"
            f" pipeline stage over the time range; the {MANY} slowest, which hold the others up.",
            unit="percentunit",
            minimum=0,
            targets=now((f"topk({MANY}, {_over_median()})", "rank {{rank}}")),
            steps=SLOWER,
            missing=shared.NO_STEPS,
            links=[links.runbook(runbooks, "RankscopeStraggler")],
            height=12,
            width=10,
        ),
        Table(
            title="A step of each rank",
            description="Means over the time range, sorted by the rank's own time (data and"
            " compute), longest first. A culprit waits little in sync; step times"
            " are all the same.",
            unit="string",
            targets=rows(*(f"({measure}) {slowest}" for measure in measures.values())),
            transformations=[{"id": "merge", "options": {}}, *columns({"rank": "rank"} | values)],
            overrides=[override(name, {"unit": "s"}) for name in measures],
            largest_first="own",
            missing=shared.NO_STEPS,
            height=12,
            width=14,
        ),
    ]


def _samples() -> list[Panel]:
    samples = of(training.SAMPLES, RANK)
    return [
        TimeSeries(
            title="Samples per second by rank",
            description=f"The {FEW} ranks that processed most. Ranks of one job should process the"
            " same number; a rank with more has shorter samples or a larger batch.",
            minimum=0,
            targets=targets((largest_rates(FEW, samples, "job_id", "rank"), "rank {{rank}}")),
            overrides=numbered("rank "),
            several=True,
            missing="no samples: the probe does not know the job's data loader",
            width=9,
        ),
        TimeSeries(
            title="Waiting for input",
            description=f"Share of time that ranks wait for a loader; the {FEW} that wait most.",
            unit="percentunit",
            minimum=0,
            targets=targets(
                (
                    largest_rates(FEW, of(training.DATA_SECONDS, RANK), "job_id", "rank"),
                    "rank {{rank}}",
                ),
            ),
            overrides=numbered("rank "),
            several=True,
            missing=shared.NO_STEPS,
            width=9,
        ),
        Table(
            title="Samples that ranks took",
            description="Samples in the time range, fewest first. Ranks with fewer samples"
            " joined later or were restarted.",
            targets=rows(
                f"bottomk({MANY}, sum {by('job_id', 'rank')} (increase({samples}[$__range])))"
            ),
            transformations=columns({"rank": "rank", "Value": "samples"}),
            unit="string",
            overrides=[override("samples", {"unit": "locale", "decimals": 0})],
            missing="no samples: the probe does not know the job's data loader",
            width=6,
        ),
    ]
