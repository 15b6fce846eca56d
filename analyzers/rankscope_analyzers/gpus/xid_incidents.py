"""One incident per GPU and root cause, over all nodes: pure, from GPU errors to findings.

On a node the rules are those for its kernel log (`contract.kernel`). Across nodes a job links
errors: when a GPU is lost, the job's processes on all others end, and each leaves clean-up codes.
Program faults stay the program's, unless two unrelated jobs meet them on one and the same GPU.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_agent.contract.kernel.incidents import CHAIN_SECONDS
from rankscope_agent.contract.kernel.vocabulary import SEVERITIES, Action, Cause, stronger
from rankscope_agent.contract.kernel.vocabulary import Severity as KernelSeverity
from rankscope_agent.contract.kernel.xid import ROW_REMAP
from rankscope_analyzers.findings.advice import CODE_ACTIONS
from rankscope_analyzers.findings.builder import make_finding
from rankscope_analyzers.findings.finding import Advice, Evidence, Finding, Where
from rankscope_analyzers.gpus.errors import GpuError
from rankscope_analyzers.gpus.near_cases import NearCases, Place, of_jobs, of_node
from rankscope_analyzers.gpus.xid_cases import Case, GpuLocation, cases, location_of, name_of
from rankscope_analyzers.text.name_lists import listed

CLOCK_SECONDS = 5.0
"""By how much nodes' clocks may differ: NTP keeps them within milliseconds, when it works."""

EFFECT_SECONDS = 900.0
"""How long after a GPU's fault its job's other processes end: PyTorch gives up on a collective
after 600 seconds by default, and dumping and ending take some more."""

UNRELATED_JOBS = 2
"""Jobs that a GPU must fail, and no other GPU, before it is suspected instead of them."""

SHARED: frozenset[Cause] = frozenset(("pcie", "driver", "nvlink_fabric"))
"""Causes that GPUs of a node share if several show the same at once: a PCIe switch, the driver,
NVSwitches."""


LOST_GPU = Advice("page", CODE_ACTIONS["reboot_node"], "RankscopeGpuLost", "platform")
"""For a GPU whose PCIe link was lost: its runbook is not that of other PCIe faults."""

ROW_REMAP_RUNBOOK = "RankscopeGpuRowRemapPending"


@dataclass(frozen=True, slots=True)
class XidIncident:
    """One incident.

    Args:
        finding: what happened, its cause as its kind, and what to do first. It pages if a GPU or
            its memory, link or driver is lost. It names no job, as it may have hit several.
        cause: in the terms of the kernel log's rules.
        action: what to do first, likewise.
        fatality: how much was lost, likewise.
        where: the GPU that it began on, or the switch.
        affected: GPUs and switches that show it too.
        job_ids: jobs that held them.
        ranks: ranks on `where`, as texts.
        codes: how often each error was reported, `Xid 79` or in words.
    """

    finding: Finding
    cause: Cause
    action: Action
    fatality: KernelSeverity
    where: GpuLocation
    affected: tuple[GpuLocation, ...]
    job_ids: tuple[str, ...]
    ranks: tuple[str, ...]
    codes: Mapping[str, int]

    @property
    def began(self) -> float:
        """Return the Unix time of its first error."""
        return self.finding.since_unix_seconds or 0.0

    @property
    def ended(self) -> float:
        """Return the Unix time of its last error."""
        return self.finding.until_unix_seconds or 0.0


def analyze(errors: Iterable[GpuError]) -> tuple[XidIncident, ...]:
    """Return the incidents among errors of any nodes, the worst first, then the latest.

    Errors that neither harm nor require action, such as the clean-up after programs that were ended
    on purpose, make no incident.
    """
    found = _again(list(cases(errors)))
    found = _one_program(_with_effects(_suspects(found)))
    findings = [_incident(case) for case in found if not _is_harmless(case)]
    return tuple(sorted(findings, key=_importance))


def _importance(found: XidIncident) -> tuple[int, bool, float, str]:
    rank = -SEVERITIES.index(found.fatality)
    return rank, found.cause == "app", -found.ended, found.where.node


def _is_harmless(case: Case) -> bool:
    return case.action == "none" and case.severity == "info"


def _again(found: Sequence[Case]) -> list[Case]:
    """Combine repeated errors of one GPU in one job."""
    kept: dict[tuple[object, ...], Case] = {}
    for case in found:
        key = (case.location, case.cause, case.own[0].kind, case.code, case.own[0].job_id)
        before = kept.get(key)
        kept[key] = case if before is None else _repeated(before, case)
    return list(kept.values())


def _joined(case: Case, others: Sequence[Case]) -> Case:
    """Return a case with the errors of others as effects."""
    if not others:
        return case
    added = tuple(error for other in others for error in other.errors)
    return replace(case, effects=case.effects + added)


def _repeated(case: Case, other: Case) -> Case:
    """Return a case with another one's errors as its own."""
    return replace(
        case,
        action=stronger(case.action, other.action),
        severity=max(case.severity, other.severity, key=SEVERITIES.index),
        own=case.own + other.own,
        effects=case.effects + other.effects,
        times_seen=case.times_seen + other.times_seen,
    )


def _suspects(found: Sequence[Case]) -> list[Case]:
    """Suspect the GPU instead of programs if unrelated jobs faulted on it and nowhere else."""
    faults = [case for case in found if case.cause == "app" and not case.is_effect]
    locations: dict[str, set[GpuLocation]] = defaultdict(set)
    for case in faults:
        for job_id in _jobs_of(case):
            locations[job_id].add(case.location)
    by_location: dict[GpuLocation, list[Case]] = defaultdict(list)
    for case in faults:
        if any(len(locations[job_id]) == 1 for job_id in _jobs_of(case)):
            by_location[case.location].append(case)
    suspects: list[Case] = []
    suspected: set[int] = set()
    for at in by_location.values():
        jobs = sorted({job for case in at for job in _jobs_of(case) if len(locations[job]) == 1})
        if len({_program(job) for job in jobs}) < UNRELATED_JOBS:
            continue
        whole = at[0]
        for case in at[1:]:
            whole = _repeated(whole, case)
        sentence = (
            f"{whole.sentence}; {len(jobs)} jobs that have nothing in common ({listed(jobs)})"
            " faulted on this GPU and on no other: it is the GPU, not the programs"
        )
        suspect = replace(
            whole,
            cause="gpu_hardware",
            action="drain",
            severity="error",
            sentence=sentence,
            times_seen=1,
        )
        suspects.append(suspect)
        suspected |= {id(case) for case in at}
    return [*(case for case in found if id(case) not in suspected), *suspects]


def _jobs_of(case: Case) -> frozenset[str]:
    return frozenset(error.job_id for error in case.own if error.job_id)


def _program(job_id: str) -> str:
    """Return what jobs of one program have in common: the name without numbers and hashes.

    `ml/llm-7b-20261103-x7k2q` and `ml/llm-7b-20261104-9fz4d` are runs of `ml/llm`; that `llm-13b`
    counts as the same program is on the safe side.
    """
    return re.sub(r"(-(?=[a-z0-9.]*\d)[a-z0-9.]+)+$", "", job_id.lower())


def _with_effects(found: Sequence[Case]) -> list[Case]:
    """Merge a fault's effects on other GPUs of the job into its incident, gravest fault first."""
    ordered = sorted(found, key=lambda case: (-SEVERITIES.index(case.severity), case.first))
    near = NearCases(ordered, map(_places_of_effect, ordered))

    def effects(case: Case) -> Iterator[int]:
        if case.is_grave:
            times = [error.unix_seconds for error in case.own]
            begin, end = min(times) - CLOCK_SECONDS, max(times) + EFFECT_SECONDS
            for number in near.between([of_node(case), *of_jobs(case)], begin, end):
                if _follows(ordered[number], case):
                    yield number

    return list(_merged(ordered, near, effects))


def _places_of_effect(case: Case) -> list[Place]:
    """Return where a case may be an effect: on other nodes of a job only some kinds are."""
    across = case.is_effect or case.cause == "nvlink_fabric"
    return [of_node(case), *(of_jobs(case) if across else ())]


def _merged(
    ordered: Sequence[Case], near: NearCases, others: Callable[[Case], Iterable[int]]
) -> Iterator[Case]:
    """Yield cases in order, each one with the later ones that belong to it."""
    for number, case in enumerate(ordered):
        if near.has(number):
            near.take([number])
            taken = list(others(case))
            near.take(taken)
            yield _joined(case, [ordered[other] for other in taken])


def _follows(other: Case, case: Case) -> bool:
    """Return True if a case is the effect of another one, which is grave, on its job or node."""
    if not any(_soon_after(other.first, error.unix_seconds) for error in case.own):
        return False
    together = bool(other.jobs & case.jobs)
    here = other.location.node == case.location.node
    if not (together or (here and not (other.jobs and case.jobs))):
        return False
    near = any(abs(other.first - error.unix_seconds) <= CHAIN_SECONDS for error in case.own)
    if other.is_effect or not near:
        return other.is_effect
    if other.cause == "app":
        return here
    shared = here and case.cause in SHARED and other.code == case.code
    return other.cause == case.cause and (case.cause == "nvlink_fabric" or shared)


def _soon_after(effect: float, cause: float) -> bool:
    return cause - CLOCK_SECONDS <= effect <= cause + EFFECT_SECONDS


def _one_program(found: Sequence[Case]) -> list[Case]:
    """Combine the traces of a program's fault on the GPUs of its job, the fault itself first."""
    ordered = sorted(found, key=lambda case: (case.is_effect, case.first))
    near = NearCases(ordered, map(_places_of_program, ordered))

    def traces(case: Case) -> Iterator[int]:
        if case.cause == "app":
            begin, end = case.first - EFFECT_SECONDS, case.first + EFFECT_SECONDS
            for number in near.between(_places_of_program(case), begin, end):
                if _is_of_program(ordered[number], case):
                    yield number

    return list(_merged(ordered, near, traces))


def _places_of_program(case: Case) -> list[Place]:
    if case.cause != "app":
        return []
    return of_jobs(case) or [of_node(case)]


def _is_of_program(other: Case, case: Case) -> bool:
    if other.cause != "app" or abs(other.first - case.first) > EFFECT_SECONDS:
        return False
    same_node = other.location.node == case.location.node and not (other.jobs or case.jobs)
    return bool(other.jobs & case.jobs) or same_node


def _incident(case: Case) -> XidIncident:
    codes: dict[str, int] = defaultdict(int)
    for error in case.errors:
        codes[name_of(error)] += error.count
    affected = dict.fromkeys(
        location_of(e) for e in case.effects if location_of(e) != case.location
    )
    return XidIncident(
        finding=_finding(case, codes, len(affected)),
        cause=case.cause,
        action=case.action,
        fatality=case.severity,
        where=case.location,
        affected=tuple(affected),
        job_ids=tuple(sorted(case.jobs)),
        ranks=tuple(dict.fromkeys(error.rank for error in case.own if error.rank)),
        codes=dict(codes),
    )


def _finding(case: Case, codes: Mapping[str, int], affected: int) -> Finding:
    location = case.location
    made = make_finding(
        case.cause,
        "kernel",
        "",
        Where(
            nodes=(location.node,),
            uuids=(location.uuid,) if location.uuid else (),
            gpus=(location.gpu,) if location.gpu else (),
        ),
        _summary(case, affected),
        tuple(
            Evidence("kernel log", float(count), 0.0, "events", name)
            for name, count in codes.items()
        ),
        case.first,
        severity="page" if case.severity == "fatal" else "ticket",
        instead=LOST_GPU if case.cause == "pcie" else None,
    )
    remap = case.code in ROW_REMAP and case.own[0].kind == "xid"
    return replace(
        made,
        action=CODE_ACTIONS[case.action],
        runbook=ROW_REMAP_RUNBOOK if remap else made.runbook,
        until_unix_seconds=max(case.last, *(error.unix_seconds for error in case.errors)),
    )


def _summary(case: Case, affected: int) -> str:
    root = case.own[0]
    who = str(case.location) if root.kind != "sxid" else f"NVSwitch {root.pci} of node {root.node}"
    whose = [f"rank {root.rank}"] if root.rank else []
    whose += [f"job {root.job_id}"] if root.job_id and case.cause != "gpu_hardware" else []
    text = f"{who}{', ' if whose else ''}{' of '.join(whose)}: {case.sentence}"
    if case.times_seen > 1:
        text += f"; {case.times_seen} times"
    if affected:
        text += f"; {affected} more GPU{'s are' if affected > 1 else ' is'} hit"
    return text
