"""Turn incidents into findings: a sentence, evidence, advice and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rankscope_analyzers.findings.advice import (
    ADVICE,
    SLOW_CPU,
)
from rankscope_analyzers.findings.builder import make_finding
from rankscope_analyzers.findings.finding import (
    Advice,
    Cost,
    Evidence,
    Finding,
    RankLocation,
    Where,
)
from rankscope_analyzers.numeric.row_statistics import row_maximum
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers import unobserved_ranks
from rankscope_analyzers.stragglers.faults import Fault, merge_incidents
from rankscope_analyzers.stragglers.incident_texts import TEMPLATES, Template
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.peer_evidence import peer_evidence
from rankscope_analyzers.stragglers.view import SampleImbalance
from rankscope_analyzers.text.wording import against, duration

SECONDS_PER_HOUR = 3600.0

PAGE_COST = 0.10
"""A fault that takes 10 % of every step is worth a page."""

NEARLY_EQUAL = 0.02
"""A stage this close to the mean needs no layer more or less: one layer is more than that."""


def findings(
    frame: StepFrame, incidents: Sequence[Incident], silent: Mapping[int, float] | None = None
) -> tuple[Finding, ...]:
    """Return one finding per fault; incidents of the same cause are merged.

    Args:
        frame: the job that they were found in.
        incidents: in order of detection.
        silent: ranks that have fallen silent, with seconds since then.
    """
    newest = float(row_maximum(frame.starts + frame.step).max())
    return tuple(
        _finding(frame, fault, silent or {}) for fault in merge_incidents(incidents, newest)
    )


def _finding(frame: StepFrame, fault: Fault, silent: Mapping[int, float]) -> Finding:
    incident = fault.main
    unseen: tuple[int, ...] = ()
    shown_by = incident.shown_by
    if shown_by == "exchange":
        unseen = unobserved_ranks.unseen_during(frame, silent, fault.since, fault.until)
        shown_by = "unseen" if unseen else shown_by
    template = TEMPLATES.get((incident.kind, shown_by), TEMPLATES[incident.kind, ""])
    culprits = _culprits(frame, incident)
    hours = fault.lost * frame.world_size / SECONDS_PER_HOUR
    lost = min(max(fault.lost_fraction, 0.0), 1.0)
    return make_finding(
        incident.kind,
        "training",
        frame.job_id,
        Where(
            nodes=tuple(dict.fromkeys(incident.nodes)),
            ranks=incident.ranks,
            stage=incident.stage,
            culprits=culprits,
        ),
        _summary(template, incident, culprits, unseen) + _episodes(fault),
        (
            Evidence(
                template.source, incident.observed, incident.expected, _unit(incident),
                template.meaning,
            ),
            *_stage_evidence(incident),
            *peer_evidence(frame, incident),
        ),
        fault.since,
        until_unix_seconds=fault.until,
        source="step records",
        severity="page" if lost >= PAGE_COST else None,
        instead=_advice(frame, template, incident),
        cost=Cost(lost, hours),
        confidence=incident.confidence,
    )  # fmt: skip


def _unit(incident: Incident) -> str:
    if incident.sample_imbalance is not None:
        return "samples"
    return "ratio" if _is_spread(incident) else "seconds"


def _is_spread(incident: Incident) -> bool:
    return incident.kind == "partition_imbalance" and incident.stage < 0 and not incident.shown_by


def _episodes(fault: Fault) -> str:
    """Describe a fault that came and went."""
    return f", in {fault.count} episodes" if fault.count > 1 else ""


def _culprits(frame: StepFrame, incident: Incident) -> tuple[RankLocation, ...]:
    return tuple(
        _culprit(frame, rank, node)
        for rank, node in zip(incident.ranks, incident.nodes, strict=True)
    )


def _culprit(frame: StepFrame, rank: int, node: str) -> RankLocation:
    """Return where a rank is, without its GPU if the rank has moved or none is known.

    Ranks are renumbered when a job shrinks; incidents keep their original numbers.
    """
    column = int(np.searchsorted(frame.ranks, rank))
    there = column < len(frame.ranks) and frame.ranks[column] == rank
    if not there or frame.nodes[column] != node:
        return RankLocation(rank, node)
    local = int(frame.gpus[column])
    on_cpu = node in frame.without_gpus and local >= 0
    return RankLocation(rank, node, local if on_cpu else None, gpu=frame.gpu(column))


def _summary(
    template: Template,
    incident: Incident,
    culprits: Sequence[RankLocation],
    unseen: Sequence[int] = (),
) -> str:
    known = incident.expected > 0
    times = _times(incident.observed / incident.expected) if known else ""
    sentence = template.sentence
    if not known:
        sentence = sentence.replace(" as {its} peers", "").replace(" as {before}", "")
    return sentence.format(
        who=_who(culprits),
        s="s" if len(culprits) == 1 else "",
        its="its" if len(culprits) == 1 else "their",
        at=f"at {_who(culprits)}" if culprits else "of some groups",
        before="before",
        ratio=f"{times} as long" if known else "long",
        times=times or "more than",
        values=against(incident.observed, incident.expected),
        observed=duration(incident.observed),
        uneven=_uneven(incident),
        slower="{} of {}".format(*incident.slower),
        unseen=unobserved_ranks.without_records(unseen),
    )


MOST_TIMES = 100.0
"""Beyond it, a ratio says only that the peers' time is next to nothing."""


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio <= MOST_TIMES else f"more than {MOST_TIMES:.0f}x"


def _who(culprits: Sequence[RankLocation]) -> str:
    if not culprits:
        return "all ranks"
    first, more = culprits[0], len(culprits) - 1
    company = f" and {more} more rank{'s' if more > 1 else ''}" if more else ""
    which = "" if first.local_rank is None else f", local rank {first.local_rank}"
    which = f", GPU {first.gpu}" if first.gpu else which
    return f"rank {first.rank} (node {first.node}{which}){company}"


def _uneven(incident: Incident) -> str:
    if incident.sample_imbalance is not None:
        return _uneven_samples(incident.sample_imbalance)
    if incident.stage >= 0:
        return f"stage {incident.stage} computes {against(incident.observed, incident.expected)}"
    return f"replicas differ by {incident.observed:.1%} (standard deviation within a step)"


def _uneven_samples(samples: SampleImbalance) -> str:
    more = f"{samples.largest / samples.mean:.2f}x the mean of {samples.mean:.6g}"
    if samples.rank >= 0:
        return f"rank {samples.rank} gets {samples.largest:.6g} samples a step, {more}"
    return (
        f"the rank with the most gets {samples.largest:.6g} samples, {more}, a changing rank of all"
    )


def _advice(frame: StepFrame, template: Template, incident: Incident) -> Advice | None:
    """Return advice that replaces the table's; for uneven work, how much of it to move."""
    if incident.kind == "partition_imbalance":
        return replace(ADVICE[incident.kind], action=_rebalance(incident))
    if incident.kind != "gpu_compute":
        return template.instead
    known = SLOW_CPU if set(incident.nodes[:1]) & frame.without_gpus else template.instead
    if np.isfinite(frame.data).any():
        return known
    advice = known or ADVICE[incident.kind]
    return replace(advice, action=f"{UNSEEN_INPUT} {advice.action}")


UNSEEN_INPUT = (
    "No rank's input is measured, and loading may count as computing: rule that out first, or have"
    " it measured with rankscope_probe.batches."
)


def _rebalance(incident: Incident) -> str:
    if incident.sample_imbalance is not None:
        return _redistribute(incident.sample_imbalance)
    if incident.shown_by == "ranks":
        return UNEVEN_RANKS
    if incident.stage < 0:
        return (
            "Deal sequences to replicas by their total length (or its square, for attention), not "
            f"by their number: the slowest replica of a step costs {incident.lost_fraction:.0%}."
        )
    return _move_layers(incident.stages)


UNEVEN_RANKS = (
    "Compare what ranks are given: tokens of their experts, lengths of their samples, their part of"
    " a sequence in context parallelism, modules that only some of them hold. Either the same ranks"
    " of every node compute longer, or the differences move from rank to rank: no GPU does that."
)


def _redistribute(samples: SampleImbalance) -> str:
    where = f"Give rank {samples.rank} fewer" if samples.rank >= 0 else "Deal equal numbers of"
    return (
        f"{where} samples, {samples.mean:.6g} a step on every rank: each additional one takes "
        f"{samples.rate * 1e3:.3g} ms of compute, and the counts explain {samples.explained:.0%} "
        "of the differences between ranks. No hardware is at fault."
    )


def _move_layers(stages: Sequence[float]) -> str:
    """Return which layers to move: with one stage h and others m, all get (h + (P - 1) m) / P."""
    mean = sum(stages) / max(len(stages), 1)
    moves = (
        f"{'from' if weight > mean else 'to'} stage {stage} {abs(1 - mean / weight):.0%} of its own"
        for stage, weight in enumerate(stages)
        if abs(weight - mean) > NEARLY_EQUAL * mean and weight > 0
    )
    return (
        f"Move layers until every stage computes {duration(mean)}: {', '.join(moves)}. "
        "No hardware is at fault."
    )


def _stage_evidence(incident: Incident) -> tuple[Evidence, ...]:
    """Return the compute of each stage, and that of an even split."""
    if not incident.stages:
        return ()
    mean = sum(incident.stages) / len(incident.stages)
    return tuple(
        Evidence("compute_seconds", weight, mean, "seconds", f"stage {stage}, if split evenly")
        for stage, weight in enumerate(incident.stages)
    )
