"""What one check concludes: pass, warn, fail, or a skip with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rankscope_analyzers.preflight.job import Job, NotApplicableError, Role, UndecidedError

Verdict = Literal["pass", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One check's conclusion about a job.

    Args:
        verdict: pass, warn, fail or skip.
        seen: the content of the manifest; the reason for a skip.
        expected: what it should be, empty if nothing is wrong.
        remedy: what to change.
        undecided: True for a skip because something could not be read, not because there is nothing
            to check.
    """

    verdict: Verdict
    seen: str
    expected: str = ""
    remedy: str = ""
    undecided: bool = False

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return {
            "verdict": self.verdict,
            "seen": self.seen,
            "expected": self.expected,
            "remedy": self.remedy,
            "undecided": self.undecided,
        }


def passed(seen: str) -> Outcome:
    """Return that nothing is wrong."""
    return Outcome("pass", seen)


def warned(seen: str, expected: str, remedy: str) -> Outcome:
    """Return that the job runs, with a risk or below its speed."""
    return Outcome("warn", seen, expected, remedy)


def failed(seen: str, expected: str, remedy: str) -> Outcome:
    """Return that the job does not run, or not on the fast path."""
    return Outcome("fail", seen, expected, remedy)


def outcome_of(check: Callable[[], Outcome]) -> Outcome:
    """Return a check's conclusion, or why it has none."""
    try:
        return check()
    except NotApplicableError as reason:
        return Outcome("skip", str(reason))
    except UndecidedError as reason:
        return Outcome("skip", str(reason), undecided=True)


def gravity(outcome: Outcome) -> int:
    """Return the weight of an outcome: the worst one is shown."""
    if outcome.undecided:
        return 2
    return {"fail": 4, "warn": 3, "pass": 1, "skip": 0}[outcome.verdict]


def worst(outcomes: Iterable[tuple[str, Outcome]]) -> Outcome:
    """Return the worst of several parts' outcomes, with the name of the first part that has it.

    Raises:
        NotApplicableError: there are no parts.
    """
    found = list(outcomes)
    if not found:
        raise NotApplicableError("the job has no compute pods")
    name, most = max(found, key=lambda one: gravity(one[1]))
    alike = sum(gravity(outcome) == gravity(most) for _, outcome in found)
    if len(found) == 1:
        return most
    others = f" (and {alike - 1} more of {len(found)})" if alike > 1 else ""
    seen = f"{name}{others}: {most.seen}"
    return Outcome(most.verdict, seen, most.expected, most.remedy, most.undecided)


def of_ranks(check: Callable[[Job, Role], Outcome]) -> Callable[[Job], Outcome]:
    """Return a check of a job from a check of each of its parts that hold ranks."""

    def of_job(job: Job) -> Outcome:
        if not job.roles:
            raise UndecidedError(f"no pods of this {job.kind} are found: are its fields misspelt?")
        return worst((role.name, outcome_of(lambda r=role: check(job, r))) for role in job.ranks)  # type: ignore[misc]

    of_job.__doc__ = check.__doc__
    return of_job
