"""Series of accounts for alerts, as the watch itself writes them while time goes by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from alert_timelines import Series, State
from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.model import HistogramValue, Sample
from rankscope_analyzers.configuration.values import Configuration, Price
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.account import Recovery
from rankscope_analyzers.watch.bill import Bill
from rankscope_analyzers.watch.recoveries import Recoveries

PRICED = Configuration(currency="EUR", prices=(Price(60.0),))
"""A minute of a GPU costs 1."""


def spending(project: str, gpus: Mapping[State, float]) -> Series:
    """What a project's GPUs cost, which are so many in each state."""

    def values(states: Sequence[State], step: int) -> list[str]:
        bill, texts = Bill(PRICED), []
        bill.add((project, ""), {parts.PRODUCTIVE: 0.0}, "")
        for state in states:
            texts.append(_read(bill.samples(), metrics.PROJECT_COST.name, parts.PRODUCTIVE))
            bill.add((project, ""), {parts.PRODUCTIVE: gpus[state] * step * 60.0}, "")
        return texts

    labels = f'project="{project}",job_class="",part="{parts.PRODUCTIVE}",currency="EUR"'
    return Series(f"{metrics.PROJECT_COST.name}{{{labels}}}", values)


def recoveries(late: Mapping[State, int], each_minute: int) -> tuple[Series, ...]:
    """How many recoveries of a class's jobs there were, and how many of them were late."""
    labels = '{job_class="production",interruption="restart"}'

    def of(name: str) -> Series:
        def values(states: Sequence[State], step: int) -> list[str]:
            kept, texts = Recoveries({"production": "15m", "": "2h"}), []
            for state in states:
                slow = late[state] * step
                took = [901.0] * slow + [900.0] * (each_minute * step - slow)
                kept.add("team/llm", "production", [Recovery(parts.RESTART, one) for one in took])
                texts.append(_read(kept.samples(), name, parts.RESTART))
            return texts

        suffix = "_count" if name == metrics.RECOVERIES.name else ""
        return Series(f"{name}{suffix}{labels}", values)

    return of(metrics.RECOVERIES.name), of(metrics.RECOVERIES_LATE.name)


def _read(samples: Iterable[Sample], name: str, label: str) -> str:
    (found,) = [one.value for one in samples if one.metric.name == name and label in one.labels]
    return f"{found.count if isinstance(found, HistogramValue) else found:.10g}"
