"""Panels about whether the selected job learns, and how fast: from its logs and its probes."""

from __future__ import annotations

from rankscope_agent.contract.metrics import job_logs, reported, training, watch
from rankscope_agent.contract.model import Metric
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.expressions.queries import (
    FEW,
    JOB,
    MANY,
    NODE,
    RANK,
    job_pods,
    largest_rates,
    of,
    rate,
    whole,
)
from rankscope_dashboards.parts import links, shared
from rankscope_dashboards.parts.fields import (
    colored,
    columns,
    lettered,
    numbered,
    override,
    texts,
)
from rankscope_dashboards.parts.panels import (
    BAD,
    GOOD,
    NEUTRAL,
    WARN,
    Panel,
    StateTimeline,
    Table,
    TimeSeries,
    rows,
    targets,
)
from rankscope_dashboards.parts.thresholds import ANY_IS_ODD

NO_LOG = "no step lines in logs: docs/job_logs.md lists the supported frameworks"
NO_SIGNALS = "the probe knows no optimizer of the job, and its program does not report it"
NO_NONFINITE = "the probe received no loss that is infinite or NaN"
NO_TOKENS = "the program does not say how many tokens it processes (rankscope_probe.step)"

STATUSES = {
    "at_lowest": ("at its lowest", GOOD),
    "above_lowest": ("above its lowest", NEUTRAL),
    "jumped": ("higher than before a restart", WARN),
    "diverging": ("diverges", BAD),
    "not_finite": ("not finite", BAD),
}

POD = ("node", "pod_namespace", "pod_name", "framework")


def losses(runbooks: str) -> list[Panel]:
    """Return the panels about what is learned."""
    diverging = links.runbook(runbooks, "RankscopeLossDiverging")
    not_finite = links.runbook(runbooks, "RankscopeNonFiniteLoss")
    rates = of(reported.LEARNING_RATE, JOB)
    return [
        TimeSeries(
            title="Loss",
            description="Training loss as the job logs it, by pod and framework; a gap is a"
            " loss that was infinite or NaN. Only its trend is meaningful. If the program"
            " reports losses to the probe, their level by rank.",
            unit="none",
            targets=targets(
                (_by_pod(job_logs.JOB_LOG_LOSS), "{{pod_name}} {{framework}}"),
                (_of_few_ranks(reported.LOSS_LEVEL), "rank {{rank}}"),
            ),
            overrides=lettered(),
            missing=NO_LOG,
            links=[diverging, links.runbook(runbooks, "RankscopeLossJump")],
            width=8,
        ),
        TimeSeries(
            title="Learning rate",
            description=(
                "The highest and the lowest learning rate among the ranks, which should be"
                " the same: of the first group of each optimizer, or as reported by the"
                " program."
            ),
            unit="none",
            minimum=0,
            targets=targets((f"max({rates})", "highest"), (f"min({rates})", "lowest")),
            overrides=colored(("highest", "lowest")),
            missing=NO_SIGNALS,
            links=[links.runbook(runbooks, "RankscopeLossJump")],
            width=8,
        ),
        TimeSeries(
            title="Steps without an update",
            description="Steps that the framework skipped, mostly because of half-precision"
            " overflow, and losses that were NaN. A few at the start are normal.",
            minimum=0,
            at_least=4,
            decimals=0,
            targets=targets(
                (f"sum({_grown(job_logs.JOB_LOG_SKIPPED_STEPS)})", "skipped"),
                (f"sum({_grown(job_logs.JOB_LOG_NONFINITE_LOSSES)})", "loss is no number"),
                (_most_of_a_rank(reported.SKIPPED_UPDATES), "skipped, by the probe"),
                (_most_of_a_rank(reported.NONFINITE_LOSSES), "no number, by the probe"),
            ),
            overrides=colored(["skipped", "loss is no number"]),
            steps=ANY_IS_ODD,
            missing=NO_LOG,
            links=[not_finite],
            width=8,
        ),
        _status(diverging, not_finite),
        *_first_not_finite(not_finite),
    ]


def _status(*runbooks: tuple[str, str]) -> Panel:
    """Return the state of the loss over time, as the watch judged it."""
    numbered_ones = " or ".join(
        f"{number} * {of(watch.JOB_CONVERGENCE, JOB, matcher)}"
        for number, matcher in enumerate(f'status="{name}"' for name in STATUSES)
    )
    return StateTimeline(
        title="Convergence",
        description=(
            "State of the loss that the program reports to the probe, as judged by"
            " `rankscope watch`: at its lowest level since the process began (within a"
            " twentieth), above it, more than one and a half times that before a restart,"
            " more than twice its lowest, infinite or NaN."
        ),
        targets=targets((f"max {by()} ({numbered_ones})", "loss {{cluster}}")),
        mappings=texts(dict(enumerate(STATUSES.values()))),
        unit="string",
        missing="no watch, or the program reports no losses (rankscope_probe.loss)",
        links=list(runbooks),
        width=24,
        height=4,
    )


def _first_not_finite(runbook: tuple[str, str]) -> list[Panel]:
    """Return where losses became infinite or NaN, and which files of the dataset were read."""
    step = worst(of(reported.NONFINITE_LOSS_STEP, RANK), "rank")
    files = worst(of(reported.NONFINITE_LOSS_SHARDS, RANK), "rank")
    first = f"and on (cluster, rank) bottomk({MANY}, {step})"
    return [
        Table(
            title="First losses that were infinite or NaN",
            description="Step after which the loss of each rank became infinite or NaN after"
            " finite ones, earliest first, and how many files of the dataset it came"
            " from (0 if the program does not report it). It began in the rank with"
            " the earliest step: one step later all ranks have such losses.",
            unit="string",
            targets=rows(f"bottomk({MANY}, {step})", f"{files} {first}"),
            transformations=[
                {"id": "merge", "options": {}},
                *columns(
                    {
                        **shared.CLUSTER_COLUMN,
                        "rank": "rank",
                        "Value #A": "after step",
                        "Value #B": "files read",
                    }
                ),
            ],
            missing=NO_NONFINITE,
            links=[runbook],
            width=12,
        ),
        Table(
            title="Files read there",
            description=(
                "CRC-32 of the name of each of these files, without its directory, if"
                " there are at most four. `rankscope explain dataset MANIFEST --read CRC`"
                " compares the file with the dataset's manifest; write the CRC with eight"
                " digits there."
            ),
            unit="string",
            targets=rows(
                f"{worst(of(reported.NONFINITE_LOSS_SHARD, RANK), 'rank', 'position')} {first}"
            ),
            transformations=columns(
                {
                    **shared.CLUSTER_COLUMN,
                    "rank": "rank",
                    "position": "file",
                    "Value": "name's CRC-32",
                }
            ),
            overrides=[override("name's CRC-32", {"unit": "hex"})],
            missing=NO_NONFINITE,
            links=[runbook],
            width=12,
        ),
    ]


def throughput(runbooks: str) -> list[Panel]:
    """Return the panels about samples and tokens per second."""
    degraded = links.runbook(runbooks, "RankscopeThroughputDegraded24h")
    return [
        TimeSeries(
            title="Tokens per second",
            description=(
                f"Tokens per second of all ranks together, and of the {FEW} ranks that"
                " process most, as reported by the program."
            ),
            minimum=0,
            targets=targets(
                (f"sum({rate(of(reported.TOKENS, JOB))})", "all ranks"),
                (largest_rates(FEW, of(reported.TOKENS, RANK), "rank"), "rank {{rank}}"),
            ),
            overrides=[*colored(["all ranks"]), *numbered("rank ")],
            several=True,
            missing=NO_TOKENS,
            links=[degraded],
            width=8,
        ),
        TimeSeries(
            title="Samples per second of all ranks",
            description=(
                "Samples that all ranks together take from their loaders, as measured by the probe."
            ),
            minimum=0,
            targets=targets((f"sum({rate(of(training.SAMPLES, JOB))})", "all ranks")),
            overrides=colored(["all ranks"]),
            missing="no samples: the probe does not know the job's data loader",
            links=[degraded],
            width=8,
        ),
        TimeSeries(
            title="Samples per second, as printed",
            description="Throughput of the whole job as its framework logs it, also for jobs"
            " without the probe. It is measured between log lines, including"
            " evaluations.",
            minimum=0,
            targets=targets((_by_pod(job_logs.JOB_LOG_SAMPLES_RATE), "{{pod_name}} {{framework}}")),
            overrides=lettered(),
            missing=NO_LOG,
            width=8,
        ),
        TimeSeries(
            title="Tokens per second, as printed",
            description=(
                "Tokens per second in the job's log: of the whole job, or per GPU if the"
                " framework prints that (torchtitan, torchtune, PaddleNLP, MaxText)."
            ),
            minimum=0,
            targets=targets(
                (_by_pod(job_logs.JOB_LOG_TOKENS_RATE), "{{pod_name}} {{framework}}"),
                (_by_pod(job_logs.JOB_LOG_GPU_TOKENS_RATE), "{{pod_name}} {{framework}}, per GPU"),
            ),
            overrides=lettered(),
            missing=NO_LOG,
            width=24,
        ),
    ]


def _by_pod(metric: Metric) -> str:
    """Return a series per pod; if more than a few pods print, one represents the others."""
    known = worst(job_pods(of(metric, NODE)), *POD)
    order = worst(whole("last_over_time", of(job_logs.JOB_LOG_LAST_LINE, NODE)), *POD)
    return f"{known} and topk({FEW}, {job_pods(order)})"


def _grown(metric: Metric) -> str:
    return job_pods(f"increase({of(metric, NODE)}[$__rate_interval])")


def _most_of_a_rank(metric: Metric) -> str:
    """Return how often it happened on the rank with the most events: all ranks report it."""
    return f"max(increase({of(metric, JOB)}[$__rate_interval]))"


def _of_few_ranks(metric: Metric) -> str:
    known = worst(of(metric, RANK), "rank")
    return f"{known} and topk({FEW}, {worst(whole('max_over_time', of(metric, RANK)), 'rank')})"
