"""Turns the final verdict on a job, as `rankscope diagnose --json` prints it, into what is scored.

There is one answer per job. It matches a fault if it names a time at which the fault was present:
from its `since` to its `until`, or to the end if it is active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from benchmarks.straggler_suite import scorer


@dataclass(slots=True)
class Outcome:
    """Final verdicts on many jobs.

    Args:
        labels: the labels by job.
        reported: the verdicts by job, in the scorer's form.
        unjudged: why there is none, by job.
    """

    labels: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    reported: dict[str, dict[str, Any]] = field(default_factory=dict)
    unjudged: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        name: str,
        labels: Mapping[str, Any],
        answer: Mapping[str, Any] | None,
        shift: float = 0.0,
        problem: str = "",
    ) -> None:
        """Record what was reported of a job, `shift` seconds later than its labels' times."""
        self.labels[name] = labels
        self.reported[name] = {"verdicts": []}
        if answer is None:
            self.unjudged[name] = problem
        elif answer["verdict"]["class"] is not None:
            self.reported[name] = {"verdicts": [verdict(answer["verdict"], labels, shift)]}

    def tally(self) -> scorer.Tally:
        """Match verdicts with faults."""
        return scorer.tally({"jobs": self.labels}, {"jobs": self.reported})


def verdict(
    reported: Mapping[str, Any], labels: Mapping[str, Any], shift: float = 0.0
) -> dict[str, Any]:
    """Return a verdict in the members of the trace contract."""
    end = labels["exec_end_unix"][-1]
    since, until = reported.get("since_unix_seconds"), reported.get("until_unix_seconds")
    first = labels["job_start_unix"] if since is None else since - shift
    last = end if until is None else until - shift
    return {
        "class": reported["class"],
        "ranks": reported["ranks"],
        "pp_stage": reported.get("pp_stage", -1),
        "lost_fraction": reported["lost_fraction"],
        "gpu_hours_lost": reported["gpu_hours_lost"],
        "detected_at_unix": _reported_moment(
            labels["faults"], first, max(first, last), reported["class"]
        ),
    }


def _reported_moment(
    faults: Sequence[Mapping[str, Any]], first: float, last: float, kind: str
) -> float:
    """Return the moment between `first` and `last` that is nearest to the reported fault."""
    moments = [
        (max(first - fault["end_unix"], fault["start_unix"] - last, 0.0), fault["class"] != kind,
         min(max(fault["start_unix"], first), last))
        for fault in faults
    ]  # fmt: skip
    return min(moments)[2] if moments else last


def scores(outcome: Outcome) -> dict[str, float]:
    """Return the contract's figures for one answer per job, and the results on healthy jobs."""
    counted = outcome.tally()
    usual = scorer.scores(counted)
    left_out = ("median delay", "p90 delay", "alarms per healthy day")
    healthy = [name for name, labels in outcome.labels.items() if not labels["faults"]]
    accused = [name for name in healthy if outcome.reported[name]["verdicts"]]
    return {
        **{name: value for name, value in usual.items() if name not in left_out},
        "GPU hours off by": _factor_of_hours(counted),
        "healthy": len(healthy),
        "accused": len(accused),
        "unjudged": len(outcome.unjudged),
    }


def _factor_of_hours(counted: scorer.Tally) -> float:
    """Return the geometric mean of the factors by which GPU hours of found faults are off.

    A fault that only began with the last steps has cost nothing yet, and is left out.
    """
    pairs = [(f["gpu_hours_lost"], one["gpu_hours_lost"] or 0.0) for _, f, one in counted.matched]
    factors = [
        abs(np.log(reported / lost)) for lost, reported in pairs if lost > 0 and reported > 0
    ]
    return float(np.exp(np.mean(factors))) if factors else float("nan")


def wrong(outcome: Outcome) -> list[str]:
    """Return a line for each job with a wrong verdict."""
    lines = [f"{name}: not judged: {why.strip().splitlines()[-1]}"
             for name, why in outcome.unjudged.items()]  # fmt: skip
    for name, labels in outcome.labels.items():
        one = scorer.tally({"jobs": {name: labels}}, {"jobs": {name: outcome.reported[name]}})
        if name not in outcome.unjudged and not _right(one):
            lines.append(
                f"{name}: expected {_expected(labels)}, got {_got(outcome.reported[name])}"
            )
    return lines


def _right(one: scorer.Tally) -> bool:
    return not (one.missed or one.wrong) and all(
        _same(f, reported) for _, f, reported in one.matched
    )


def _same(fault: Mapping[str, Any], reported: Mapping[str, Any]) -> bool:
    someone = fault["accept_ranks"] or fault["culprit_stage"] >= 0
    same_culprit = scorer.names(fault, reported) if someone else not reported["ranks"]
    return fault["class"] == reported["class"] and same_culprit


def _expected(labels: Mapping[str, Any]) -> str:
    kinds = zip(labels["faults"], labels["subtypes"], strict=True)
    answers = [
        f"{fault['class']}/{subtype}{_culprit(fault['culprit_ranks'], fault['culprit_stage'])}"
        f" costing {fault['lost_fraction']:.3f}"
        f" at {_share(labels, fault['start_unix']):.0%} to {_share(labels, fault['end_unix']):.0%}"
        for fault, subtype in kinds
    ]
    job = f" ({labels['timing']}, {labels['world_size']} ranks)"
    return (" and ".join(answers) or "nothing") + job


def _got(reported: Mapping[str, Any]) -> str:
    if not reported["verdicts"]:
        return "nothing"
    (one,) = reported["verdicts"]
    culprit = _culprit(one["ranks"], one["pp_stage"])
    return f"{one['class']}{culprit} costing {one['lost_fraction']:.3f}"


def _culprit(ranks: Sequence[int], stage: int) -> str:
    listed = ",".join(map(str, ranks[:8])) + ("..." if len(ranks) > 8 else "")
    return (f" ranks {listed}" if ranks else "") + (f" stage {stage}" if stage >= 0 else "")


def _share(labels: Mapping[str, Any], unix: float) -> float:
    return float((unix - labels["job_start_unix"]) / labels["wall_seconds"])
