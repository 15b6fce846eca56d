"""Panels on how much GPUs compute compared with what they could: model FLOPs utilisation."""

from __future__ import annotations

from rankscope_agent.contract.metrics import goodput
from rankscope_dashboards.expressions.promql import worst
from rankscope_dashboards.expressions.queries import CLUSTER, FEW, JOB, of
from rankscope_dashboards.parts.fields import colored
from rankscope_dashboards.parts.panels import (
    BAD,
    GOOD,
    WARN,
    BarGauge,
    Panel,
    Stat,
    TimeSeries,
    now,
    targets,
)

USED = ((None, BAD), (0.2, WARN), (0.35, GOOD))
"""Fraction of the peak: published pre-training of large models achieves 0.35 to 0.6."""

SCALES = ((None, BAD), (0.7, WARN), (0.9, GOOD))
"""Fraction of a single GPU's throughput: published scaling to thousands of GPUs achieves 0.7 to
0.95."""

UNKNOWN = (
    "no job says what it computes (docs/goodput.md), its GPUs are not known, or rankscope watch is"
    " not scraped"
)
MEANING = (
    "What models take in floating-point operations, over what the GPUs of their jobs could do, by"
    " data sheets. Operations that are done twice, as with activation checkpointing, count once."
)

FLOPS, PEAK = (of(one, CLUSTER) for one in (goodput.JOB_FLOPS, goodput.JOB_PEAK_FLOPS))
MFU = of(goodput.JOB_MFU, CLUSTER)
SCALING = of(goodput.JOB_SCALING, CLUSTER)


def panels() -> list[Panel]:
    """Return the panels on all jobs."""
    return [
        Stat(
            title="MFU",
            description=f"{MEANING} Of all jobs of the time range of which both are known.",
            unit="percentunit",
            targets=now((_ratio(_added(FLOPS), _added(PEAK)), "")),
            steps=USED,
            decimals=1,
            missing=UNKNOWN,
            briefly="not known",
            width=6,
            height=8,
        ),
        TimeSeries(
            title="MFU of all jobs",
            description=f"{MEANING} Of the jobs that ran at each point in time.",
            unit="percentunit",
            minimum=0,
            targets=targets((_ratio(worst(FLOPS, "job_id"), worst(PEAK, "job_id")), "MFU")),
            overrides=colored(["MFU"]),
            missing=UNKNOWN,
            width=9,
        ),
        BarGauge(
            title="Jobs of the lowest MFU",
            description=f"{MEANING} Averages of the time range. More than 100 % says that the"
            " program's own numbers, or its type of numbers, are wrong.",
            unit="percentunit",
            minimum=0,
            decimals=1,
            targets=now(
                (f"bottomk({FEW}, max by (job_id) (avg_over_time({MFU}[$__range])))", "{{job_id}}")
            ),
            steps=USED,
            missing=UNKNOWN,
            width=9,
        ),
        BarGauge(
            title="Jobs that scale worst",
            description="What a GPU gets done, tokens or samples a second, over what one got done"
            " in the job's own run on the fewest GPUs; of jobs that ran on several numbers of them"
            " in the last 30 days.",
            unit="percentunit",
            minimum=0,
            decimals=0,
            targets=now(
                (
                    f"bottomk({FEW}, min by (job_id) (last_over_time({SCALING}[$__range])))",
                    "{{job_id}}",
                )
            ),
            steps=SCALES,
            missing="no job ran on several numbers of GPUs, or rankscope watch is not scraped",
            width=24,
            height=6,
        ),
    ]


def of_job() -> list[Panel]:
    """Return the panels of the debug dashboard."""
    return [_mfu(), _scaling()]


def _scaling() -> Panel:
    curve = worst(of(goodput.JOB_THROUGHPUT, JOB), "gpus", "unit")
    return BarGauge(
        title="Throughput of a GPU, by how many there are",
        description="Tokens or samples a second for each GPU, in the best minutes of any run of"
        " this job in the last 30 days. If it falls with more GPUs, exchange or input takes a"
        " larger part of each step: see the parts of steps.",
        minimum=0,
        targets=now((curve, "{{cluster}} {{gpus}} GPUs, {{unit}}")),
        missing="the program says no tokens and has no DataLoader, or rankscope watch is not"
        " scraped",
    )


def _mfu() -> Panel:
    return TimeSeries(
        title="MFU",
        description=f"{MEANING} Its series says who tells what a token takes (flops_by), and"
        " of which type of numbers the peak is (dtype).",
        unit="percentunit",
        minimum=0,
        targets=targets(
            (f"max({of(goodput.JOB_MFU, JOB)})", "MFU"),
        ),
        overrides=colored(["MFU"]),
        missing=UNKNOWN,
    )


def _added(selector: str) -> str:
    """Return the sum over the time range, so that long jobs count more than short ones."""
    return worst(f"sum_over_time({selector}[$__range])", "job_id")


def _ratio(flops: str, peak: str) -> str:
    return f"sum({flops} and on (cluster, job_id) {peak}) / (sum({peak}) > 0)"
