"""The executive dashboard's panels on the cost of GPU time, at the prices of rankscope.yaml."""

from __future__ import annotations

from rankscope_agent.contract.metrics import goodput
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.goodput import parts
from rankscope_dashboards.expressions.queries import CLUSTER, FEW, of
from rankscope_dashboards.parts import links
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

NO_PRICES = "rankscope watch has no --config with prices, or is not scraped"
NO_BUDGETS = "rankscope.yaml of rankscope watch has no budgets"

USED = ((None, GOOD), (0.8, WARN), (1.0, BAD))
"""Fractions of a budget."""

FAULTS = f'part=~"{"|".join(parts.FAULTS)}"'
IDLE = f'part=~"{parts.IDLE}|{parts.HELD}"'
COST = of(goodput.PROJECT_COST, CLUSTER)
LOST = of(goodput.PROJECT_COST, CLUSTER, FAULTS)


def panels(runbooks: str) -> list[Panel]:
    """Return the panels.

    Args:
        runbooks: address at which docs/runbooks is served.
    """
    return [
        *_sums(),
        _by_project(),
        _every_day(),
        _budgets(runbooks),
        _against_last_week(runbooks),
        _of_tokens(),
        _of_epochs(),
    ]


def _spent(selector: str, labels: str = "currency", time: str = "$__range") -> str:
    return f"sum by ({labels}) (increase({selector}[{time}]))"


def _sums() -> list[Panel]:
    unpriced = of(goodput.PROJECT_UNPRICED, CLUSTER)
    hours = f"sum(increase({unpriced}[$__range])) / 3600 or 0 * sum(increase({COST}[$__range]))"
    return [
        _sum(
            "Spent on GPUs",
            "Cost of the GPU time in the time range, by the prices in rankscope.yaml when it"
            " was used.",
            (_spent(COST), "{{currency}}"),
        ),
        _sum(
            "Spent on lost time",
            "The part of it that was lost to faults: hangs, restarts and the steps that they"
            " repeat, slow ranks, slow input and slow exchange.",
            (_spent(LOST), "{{currency}}"),
        ),
        _sum(
            "Spent on idle GPUs",
            "The part of it that jobs held without using it: after their last step, or while others"
            " of their pods had no node.",
            (_spent(of(goodput.PROJECT_COST, CLUSTER, IDLE)), "{{currency}}"),
        ),
        _sum(
            "GPU-hours without a price",
            "GPU time in the time range without a matching price in rankscope.yaml; it is not"
            " part of these sums.",
            (hours, ""),
            decimals=1,
        ),
    ]


def _sum(title: str, description: str, query: tuple[str, str], decimals: int = 0) -> Panel:
    return Stat(
        title=title,
        description=description,
        unit="short",
        targets=now(query),
        decimals=decimals,
        missing=NO_PRICES,
        briefly="no prices",
        width=6,
    )


def _by_project() -> Panel:
    return BarGauge(
        title="Spent by project",
        description=(
            "By the project label of the jobs' pods, else by the project of their"
            " namespace in rankscope.yaml; `none` stands for jobs with neither."
        ),
        unit="short",
        minimum=0,
        decimals=0,
        targets=now(
            (
                f'label_replace(topk({FEW}, {_spent(COST, "project")}), "project", "none",'
                ' "project", "")',
                "{{project}}",
            )
        ),
        missing=NO_PRICES,
        width=8,
    )


def _every_day() -> Panel:
    return TimeSeries(
        title="Spent a day",
        description=(
            "Cost of GPU time in the day before each point in time, and the part of it"
            " that was lost to faults. If only that part rises, see where GPU time went"
            " above."
        ),
        unit="short",
        minimum=0,
        targets=targets(
            (f"sum(increase({COST}[1d]))", "spent"),
            (f"sum(increase({LOST}[1d]))", "lost to faults"),
        ),
        overrides=colored(["spent", "lost to faults"]),
        missing=NO_PRICES,
        width=8,
    )


def _against_last_week(runbooks: str) -> Panel:
    """Return a day's cost compared with the week before, of projects with costs in that week."""
    day, week = (
        f"sum by (project) (increase({COST}{span}))" for span in ("[1d]", "[7d] offset 1d")
    )
    return BarGauge(
        title="Spent in 24 hours, against the week before",
        description=(
            "Spending of projects in the last 24 hours of the time range, relative to"
            " their average day in the seven days before. More than twice as much is worth"
            " a question."
        ),
        unit="percentunit",
        minimum=0,
        decimals=0,
        targets=now((f"topk({FEW}, {day} / ({week} / 7 > 0))", "{{project}}")),
        steps=((None, GOOD), (2.0, WARN)),
        missing="no earlier spending, or no prices",
        width=8,
        links=[links.runbook(runbooks, "RankscopeSpendingUnusual")],
    )


def _of_tokens() -> Panel:
    return BarGauge(
        title="Cost of a million tokens",
        description=(
            "Spending of projects in the time range, including lost time, per token that"
            " their programs report; too high for projects in which some jobs do not"
            " report tokens."
        ),
        unit="short",
        minimum=0,
        decimals=2,
        targets=now(_of_each(goodput.PROJECT_TOKENS, "1e6 * ")),
        missing=f"no program reports tokens; or {NO_PRICES}",
        width=8,
    )


def _of_epochs() -> Panel:
    return BarGauge(
        title="Cost of an epoch",
        description=(
            "Spending of projects in the time range, including lost time, per pass over"
            " their dataset that their programs report; too high for projects in which"
            " some jobs do not report epochs."
        ),
        unit="short",
        minimum=0,
        decimals=2,
        targets=now(_of_each(goodput.PROJECT_EPOCHS)),
        missing=f"no program reports epochs; or {NO_PRICES}",
        width=8,
    )


def _of_each(metric: Metric, factor: str = "") -> tuple[str, str]:
    """Return the query for what projects spent per unit that a metric counts."""
    counted = f"sum by (project) (increase({of(metric, CLUSTER)}[$__range]))"
    cost = f"{_spent(COST, 'project, currency')} / on (project) group_left () ({counted} > 0)"
    return f"topk({FEW}, {factor}{cost})", "{{project}} {{currency}}"


def _budgets(runbooks: str) -> Panel:
    budget = f"max by (project, currency) ({of(goodput.PROJECT_BUDGET, CLUSTER)})"
    spent = _spent(COST, "project, currency")
    used = f"topk({FEW}, ({spent} or 0 * {budget}) / ({budget} > 0))"
    return BarGauge(
        title="Budgets used",
        description=(
            "Spending of projects in the time range, relative to their budget for 30 days:"
            " choose a time range of 30 days, which is this dashboard's default."
        ),
        unit="percentunit",
        minimum=0,
        maximum=1,
        decimals=0,
        targets=now((used, "{{project}}")),
        steps=USED,
        missing=NO_BUDGETS,
        links=[links.runbook(runbooks, "RankscopeBudgetPace")],
        width=8,
    )
