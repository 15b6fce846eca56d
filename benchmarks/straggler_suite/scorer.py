"""Score verdicts against labels by the rules of the trace contract, format version 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NOBODY = "no verdict"
SECONDS_PER_DAY = 86400.0


@dataclass(slots=True)
class Tally:
    """Data from which the scores of a suite are computed."""

    matched: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = field(
        default_factory=list
    )
    missed: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    healthy_days: float = 0.0
    healthy_alarms: int = 0


def tally(labels: Mapping[str, Any], verdicts: Mapping[str, Any]) -> Tally:
    """Match the verdicts of every job with its faults."""
    result = Tally()
    for name, label in labels["jobs"].items():
        reported = verdicts["jobs"].get(name, {"verdicts": []})["verdicts"]
        if not label["faults"]:
            result.healthy_days += label["wall_seconds"] / SECONDS_PER_DAY
            result.healthy_alarms += len(reported)
        _match(name, label, reported, result)
    return result


def _match(name: str, label: dict[str, Any], reported: list[dict[str, Any]], result: Tally) -> None:
    faults, used = label["faults"], set[int]()
    near = {
        number: [index for index, verdict in enumerate(reported) if _in_time(label, fault, verdict)]
        for number, fault in enumerate(faults)
    }
    best: dict[int, int] = {}
    for right in (True, False):  # verdicts that name the fault's class come first
        for number, fault in enumerate(faults):
            free = [
                index
                for index in near[number]
                if index not in used and (reported[index]["class"] == fault["class"]) is right
            ]
            if number not in best and free:
                best[number] = free[0]
                used |= set(free) if right else {free[0]}
    for number, fault in enumerate(faults):
        if not fault["detectable"]:
            used |= set(near[number]) if number in best else set()
        elif number in best:
            result.matched.append((label, fault, reported[best[number]]))
        else:
            result.missed.append(fault)
    result.wrong += [(name, verdict) for index, verdict in enumerate(reported) if index not in used]


def _in_time(label: dict[str, Any], fault: dict[str, Any], verdict: dict[str, Any]) -> bool:
    step = label["median_step_seconds"]
    early = fault["start_unix"] - 2 * step - 0.1
    late = fault["end_unix"] + max(20 * step, 0.1 * (fault["end_unix"] - fault["start_unix"]))
    return bool(early <= verdict["detected_at_unix"] <= late)


def scores(counted: Tally) -> dict[str, float]:
    """Return the figures of the contract's section 6."""
    found = len(counted.matched)
    precision = found / max(found + len(counted.wrong), 1)
    recall = found / max(found + len(counted.missed), 1)
    named = [item for item in counted.matched if item[1]["accept_ranks"] or _stage(item[1]) >= 0]
    top = sum(names(fault, verdict) for _, fault, verdict in named)
    lost = [f for f in counted.missed if f["accept_ranks"] or _stage(f) >= 0]
    free = [item for item in counted.matched if not item[1]["accept_ranks"]]
    delays = [_delay(label, fault, verdict) for label, fault, verdict in counted.matched]
    errors = [abs(f["lost_fraction"] - v.get("lost_fraction", 0.0)) for _, f, v in counted.matched]
    return {
        "detection F1": _harmonic(precision, recall),
        "precision": precision,
        "recall": recall,
        "macro class F1": float(np.mean(list(class_scores(counted).values()) or [0.0])),
        "top-1 end to end": top / max(len(named) + len(lost), 1),
        "top-1 detected": top / max(len(named), 1),
        "false blame": sum(bool(v.get("ranks")) for _, _, v in free) / max(len(free), 1),
        "median delay": float(np.median(delays)) if delays else float("nan"),
        "p90 delay": float(np.percentile(delays, 90)) if delays else float("nan"),
        "alarms per healthy day": counted.healthy_alarms / max(counted.healthy_days, 1e-9),
        "median cost error": float(np.median(errors)) if errors else float("nan"),
    }


def class_scores(counted: Tally) -> dict[str, float]:
    """Return F1 per class over the classes present."""
    present = {fault["class"] for _, fault, _ in counted.matched}
    present |= {fault["class"] for fault in counted.missed}
    result = {}
    for kind in sorted(present):
        right = sum(f["class"] == v["class"] == kind for _, f, v in counted.matched)
        actual = sum(f["class"] == kind for _, f, _ in counted.matched)
        actual += sum(f["class"] == kind for f in counted.missed)
        reported = sum(v["class"] == kind for _, _, v in counted.matched)
        reported += sum(v["class"] == kind for _, v in counted.wrong)
        result[kind] = 2 * right / (actual + reported) if right else 0.0
    return result


def confusion(counted: Tally) -> Counter[tuple[str, str]]:
    """Return how often each true class (or subtype-free health) got each answer."""
    table: Counter[tuple[str, str]] = Counter()
    table.update((f["class"], v["class"]) for _, f, v in counted.matched)
    table.update((f["class"], NOBODY) for f in counted.missed)
    table.update(("none", v["class"]) for _, v in counted.wrong)
    return table


def _stage(fault: Mapping[str, Any]) -> int:
    return int(fault["culprit_stage"])


def names(fault: Mapping[str, Any], verdict: Mapping[str, Any]) -> bool:
    """Return True if a verdict's first answer is right, for a fault that has a culprit."""
    if _stage(fault) >= 0:
        return bool(verdict.get("pp_stage", -1) == _stage(fault))
    ranks = verdict.get("ranks") or [-1]
    return ranks[0] in fault["accept_ranks"]


def _delay(label: dict[str, Any], fault: dict[str, Any], verdict: dict[str, Any]) -> int:
    ends = np.asarray(label["exec_end_unix"])
    seen = int(np.searchsorted(ends, verdict["detected_at_unix"] - 0.1))
    return max(seen - int(fault["start_exec"]) + 1, 0)


def _harmonic(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
