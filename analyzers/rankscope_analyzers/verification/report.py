"""The results of criteria for a job, as a table, as JSON, as JUnit's XML, and as an exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.table import Table

from rankscope_analyzers.text import check_list
from rankscope_analyzers.text.junit import Case, End, Suite, details, document
from rankscope_analyzers.verification.criteria import Result
from rankscope_analyzers.verification.judgement import Status

Answer = Literal["PASS", "FAIL", "NOT YET", "CANNOT TELL"]

EXIT_CODES: Mapping[Answer, int] = {"PASS": 0, "FAIL": 2, "NOT YET": 3, "CANNOT TELL": 3}
STYLES: Mapping[Status, str] = {
    "met": "green",
    "broken": "red",
    "not yet": "yellow",
    "unknown": "yellow",
    "not applicable": "cyan",
}
_ENDS: Mapping[Status, End] = {
    "met": "passed",
    "broken": "failure",
    "not yet": "error",
    "unknown": "error",
    "not applicable": "skipped",
}


@dataclass(frozen=True, slots=True)
class Verification:
    """A job and the results of its criteria.

    Args:
        job_id: name of the job.
        results: of all criteria that were wanted.
        required: identifiers of criteria that must apply.
    """

    job_id: str
    results: Sequence[Result]
    required: frozenset[str]

    @property
    def answer(self) -> Answer:
        """Return PASS only if all criteria that apply are met, and all required ones apply."""
        statuses = {one.judgement.status for one in self.results}
        if "broken" in statuses:
            return "FAIL"
        if "unknown" in statuses or self.missing:
            return "CANNOT TELL"
        return "NOT YET" if "not yet" in statuses else "PASS"

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the required criteria that do not apply."""
        return tuple(
            one.criterion.id
            for one in self.results
            if one.judgement.status == "not applicable"
            and (one.criterion.always or one.criterion.id in self.required)
        )

    @property
    def may_change(self) -> bool:
        """Return True if the result may be different later."""
        return self.answer in {"NOT YET", "CANNOT TELL"}

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return {
            "job_id": self.job_id,
            "answer": self.answer,
            "criteria": [one.as_object() for one in self.results],
            "required_but_not_applicable": list(self.missing),
        }


def table(one: Verification) -> Table:
    """Return the results of the criteria for people."""
    return check_list.table(map(_row, one.results))


def _row(result: Result) -> check_list.Row:
    judgement = result.judgement
    return check_list.Row(
        judgement.status,
        STYLES[judgement.status],
        result.criterion.id,
        judgement.seen,
        judgement.expected,
        judgement.remedy,
    )


def summary(one: Verification) -> str:
    """Return the answer and the reason for it, and what a PASS does not cover, as one line."""
    deciding: Mapping[Answer, Status] = {
        "FAIL": "broken",
        "CANNOT TELL": "unknown",
        "NOT YET": "not yet",
        "PASS": "not applicable",
    }
    status = deciding[one.answer]
    ids = [r.criterion.id for r in one.results if r.judgement.status == status]
    if one.answer == "CANNOT TELL":
        ids += [f"{name} (required, not applicable)" for name in one.missing]
    answer = f"{one.answer}: job {one.job_id}"
    if not ids:
        return answer
    if one.answer == "PASS":
        return f"{answer}; not judged: {', '.join(ids)} (--require makes them count)"
    return f"{answer}; {status}: {', '.join(ids)}"


def junit(one: Verification) -> str:
    """Return the results as JUnit's XML, one case for a criterion."""
    return document("verify", [Suite(one.job_id, list(_cases(one)))])


def _cases(one: Verification) -> Iterator[Case]:
    for result in one.results:
        judgement, name = result.judgement, result.criterion.id
        if name in one.missing:
            yield Case(name, "error", f"required, but {judgement.seen}")
        else:
            passed = judgement.status == "met"
            message = "" if passed else judgement.seen
            lines = details(
                judgement.seen, judgement.expected, judgement.remedy, result.criterion.page
            )
            yield Case(name, _ENDS[judgement.status], message, lines)
