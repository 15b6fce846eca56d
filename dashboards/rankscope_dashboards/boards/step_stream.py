"""Panels about the watch's looks for new steps: how late they are, and what they miss."""

from __future__ import annotations

from rankscope_agent.contract.metrics import watch
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.expressions.queries import CLUSTER, FEW, JOB, largest, of, rate
from rankscope_dashboards.parts import links
from rankscope_dashboards.parts.fields import lettered
from rankscope_dashboards.parts.panels import Panel, TimeSeries, targets
from rankscope_dashboards.parts.thresholds import ANY_IS_ODD

NOT_STREAMED = "rankscope watch is not scraped, or only reads steps at its evaluations"


def panels(runbooks: str) -> list[Panel]:
    """Return the panels.

    Args:
        runbooks: address at which docs/runbooks is served.
    """
    return [_looks(runbooks), _agents(runbooks), _records(), _silent_ranks(runbooks)]


def _looks(runbooks: str) -> Panel:
    newest = worst(of(watch.WATCH_STEP_LOOK, CLUSTER), "shard")
    took = worst(of(watch.WATCH_STEP_LOOK_SECONDS, CLUSTER))
    read = worst(of(watch.WATCH_LAST, CLUSTER), "shard")
    unread = worst(of(watch.WATCH_UNREAD_SINCE, CLUSTER), "shard")
    return TimeSeries(
        title="Delays at the watch",
        description=(
            "Time since the last fetch of new steps that an agent answered, by shard, and"
            " the duration of the longest fetch. Steps are fetched every five seconds; a"
            " longer fetch delays the next one, and with it every incident. Time since the last"
            " evaluation that could read data, or since the first."
        ),
        unit="s",
        targets=targets(
            (f"time() - {newest}", "last fetch, shard {{shard}} {{cluster}}"),
            (took, "longest fetch {{cluster}}"),
            (
                f"time() - ({read} or {unread})",
                "last evaluation, shard {{shard}} {{cluster}}",
            ),
        ),
        overrides=lettered(),
        several=True,
        minimum=0,
        missing="rankscope watch is not scraped",
        links=[links.runbook(runbooks, "RankscopeWatchLagging")],
    )


def _agents(runbooks: str) -> Panel:
    return TimeSeries(
        title="Agents that send the watch no steps",
        description=(
            "Silent agents have not answered for over a minute. New ones have not been"
            " asked yet, or have not answered yet: each fetch asks 128 of them."
        ),
        unit="none",
        targets=targets(
            *(
                (
                    worst(of(watch.WATCH_STEP_AGENTS, CLUSTER, f'state="{state}"')),
                    f"{state} {{{{cluster}}}}",
                )
                for state in ("silent", "new")
            )
        ),
        overrides=lettered(),
        several=True,
        minimum=0,
        at_least=4,
        decimals=0,
        missing=NOT_STREAMED,
        links=[links.runbook(runbooks, "RankscopeSilentRanks")],
    )


def _records() -> Panel:
    return TimeSeries(
        title="Step records that the watch reads",
        description=(
            "Records in the agents' answers. Records are dropped if a job has more than"
            " the watch has time for; `rankscope diagnose` names such jobs."
        ),
        unit="cps",
        targets=targets(
            *(
                (f"sum {by()} ({rate(of(watch.WATCH_STEP_RECORDS, CLUSTER, chosen))})", legend)
                for chosen, legend in (
                    ('outcome="judged"', "judged {{cluster}}"),
                    ('outcome="dropped"', "dropped {{cluster}}"),
                )
            )
        ),
        overrides=lettered(),
        several=True,
        minimum=0,
        missing=NOT_STREAMED,
    )


def _silent_ranks(runbooks: str) -> Panel:
    silent = largest(FEW, of(watch.JOB_SILENT_RANKS, JOB), "job_id")
    return TimeSeries(
        title="Ranks with missing steps, by job",
        description=(
            "Ranks that were running when their agent last answered the watch, more than a"
            " minute ago. Whether they are slow or hang is unknown."
        ),
        unit="none",
        targets=targets((silent, "{{job_id}} {{cluster}}")),
        overrides=lettered(),
        several=True,
        minimum=0,
        at_least=4,
        decimals=0,
        steps=ANY_IS_ODD,
        missing=NOT_STREAMED,
        links=[links.runbook(runbooks, "RankscopeSilentRanks")],
    )
