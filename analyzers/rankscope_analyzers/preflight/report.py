"""The results of checks, as a table, as JSON and as JUnit's XML, and as an exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.table import Table

from rankscope_analyzers.preflight.checks import Result
from rankscope_analyzers.preflight.job import Job
from rankscope_analyzers.text import check_list
from rankscope_analyzers.text.junit import Case, Suite, details, document

FAILED, UNDECIDED = 2, 3
STYLES = {"fail": "red", "warn": "yellow", "skip": "cyan", "pass": "green"}
"""In the order in which verdicts are shown."""


class Checked(Protocol):
    """What was checked, with its results."""

    @property
    def title(self) -> str:
        """Return what it is, and where it was read."""
        ...

    @property
    def results(self) -> Sequence[Result]:
        """Return the results of its checks."""
        ...


@dataclass(frozen=True, slots=True)
class CheckedPool:
    """Nodes and the results of their checks."""

    nodes: Sequence[str]
    results: Sequence[Result]

    @property
    def title(self) -> str:
        """Return how many nodes there are."""
        return f"{len(self.nodes)} node{'s' * (len(self.nodes) != 1)}"

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return {"nodes": list(self.nodes), "checks": [one.as_object() for one in self.results]}


@dataclass(frozen=True, slots=True)
class CheckedPod:
    """The results of the checks of this pod."""

    results: Sequence[Result]
    title: str = "this pod"

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return {"checks": [one.as_object() for one in self.results]}


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job and the results of its checks."""

    job: Job
    results: Sequence[Result]

    @property
    def title(self) -> str:
        """Return the job's kind and name, and its location."""
        name = "/".join(filter(None, (self.job.namespace, self.job.name or "without a name")))
        return f"{self.job.kind} {name} ({self.job.source})"

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return {
            "kind": self.job.kind,
            "namespace": self.job.namespace,
            "name": self.job.name,
            "source": self.job.source,
            "pods": self.job.pods,
            "checks": [one.as_object() for one in self.results],
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that one run of the command checked.

    Args:
        jobs: of manifests and of the cluster.
        pool: the nodes, None if none were requested; likewise the pod.
        passed_over: objects of kinds that no check knows: source and kind.
        not_read: sentences about what of jobs in the cluster could not be read.
    """

    jobs: Sequence[CheckedJob]
    pool: CheckedPool | None
    pod: CheckedPod | None
    passed_over: Sequence[tuple[str, str]]
    not_read: Sequence[str]

    @property
    def checked(self) -> Sequence[Checked]:
        """Return all that was checked, in the order in which it is shown."""
        pool: list[Checked] = [self.pool] if self.pool else []
        pod: list[Checked] = [self.pod] if self.pod else []
        return [*self.jobs, *pool, *pod]

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return {
            "jobs": [one.as_object() for one in self.jobs],
            "passed_over": [{"source": at, "kind": kind} for at, kind in self.passed_over],
            "not_read": list(self.not_read),
            **({"pool": self.pool.as_object()} if self.pool else {}),
            **({"pod": self.pod.as_object()} if self.pod else {}),
        }


def exit_code(checked: Sequence[Checked], *, strict: bool) -> int:
    """Return 2 if a check failed, 3 if one could not be decided, else 0.

    Args:
        checked: what was checked.
        strict: True if a warning counts as a failure.
    """
    outcomes = [result.outcome for one in checked for result in one.results]
    bad = {"fail", "warn"} if strict else {"fail"}
    if any(outcome.verdict in bad for outcome in outcomes):
        return FAILED
    return UNDECIDED if any(outcome.undecided for outcome in outcomes) else 0


def table(one: Checked) -> Table:
    """Return results for people, the worst first, without what does not apply."""
    order = list(STYLES)
    shown = sorted(one.results, key=lambda result: order.index(result.outcome.verdict))
    return check_list.table(map(_row, filter(_applies, shown)), one.title)


def _applies(result: Result) -> bool:
    return result.outcome.verdict != "skip" or result.outcome.undecided


def _row(result: Result) -> check_list.Row:
    outcome = result.outcome
    return check_list.Row(
        outcome.verdict,
        STYLES[outcome.verdict],
        result.check.id,
        outcome.seen,
        outcome.expected,
        outcome.remedy,
    )


def summary(one: Checked) -> str:
    """Return how many checks had which verdict, as a sentence."""
    counts = Counter(result.outcome.verdict for result in one.results)
    undecided = sum(result.outcome.undecided for result in one.results)
    parts = [f"{counts[verdict]} {verdict}" for verdict in ("pass", "warn", "fail")]
    rest = counts["skip"] - undecided
    return f"{', '.join(parts)}, {undecided} could not be decided, {rest} do not apply."


def junit(checked: Sequence[Checked], *, strict: bool) -> str:
    """Return results as JUnit's XML, one suite for each job; a strict run has warnings fail."""
    return document(
        "preflight",
        [
            Suite(one.title, [_case(result, strict=strict) for result in one.results])
            for one in checked
        ],
    )


def _case(result: Result, *, strict: bool) -> Case:
    outcome, name = result.outcome, result.check.id
    lines = details(outcome.seen, outcome.expected, outcome.remedy, result.check.page)
    if outcome.verdict == "fail" or (strict and outcome.verdict == "warn"):
        return Case(name, "failure", outcome.seen, lines)
    if outcome.undecided:
        return Case(name, "error", outcome.seen, lines)
    if outcome.verdict == "skip":
        return Case(name, "skipped", outcome.seen)
    return Case(name, "passed", details=lines if outcome.verdict == "warn" else "")
