"""What checks say of jobs, as a table, as JSON and as JUnit's XML, and as an exit code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from rich.markup import escape
from rich.table import Table

from rankscope_analyzers.preflight.checks import Result
from rankscope_analyzers.preflight.job import Job

FAILED, UNDECIDED = 2, 3
STYLES = {"pass": "green", "warn": "yellow", "fail": "red", "skip": "cyan"}

# What XML 1.0 cannot hold, whatever a manifest holds.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job and the results of its checks."""

    job: Job
    results: Sequence[Result]

    @property
    def title(self) -> str:
        """The job's kind and name, and where it stands."""
        name = "/".join(filter(None, (self.job.namespace, self.job.name or "without a name")))
        return f"{self.job.kind} {name} ({self.job.source})"

    def as_object(self) -> Mapping[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "kind": self.job.kind,
            "namespace": self.job.namespace,
            "name": self.job.name,
            "source": self.job.source,
            "pods": self.job.pods,
            "checks": [one.as_object() for one in self.results],
        }


def exit_code(jobs: Sequence[CheckedJob], *, strict: bool) -> int:
    """Return 2 if a check failed, 3 if one could not be decided, else 0.

    Args:
        jobs: what was checked.
        strict: a warning counts as a failure.
    """
    outcomes = [result.outcome for one in jobs for result in one.results]
    bad = {"fail", "warn"} if strict else {"fail"}
    if any(outcome.verdict in bad for outcome in outcomes):
        return FAILED
    return UNDECIDED if any(outcome.undecided for outcome in outcomes) else 0


def table(one: CheckedJob) -> Table:
    """Return a job's results for a person, without what does not apply."""
    drawn = Table(title=escape(one.title), title_justify="left", box=None)
    for name in ("check", "verdict", "seen", "what to do"):
        drawn.add_column(name, overflow="fold")
    for result in one.results:
        outcome = result.outcome
        if outcome.verdict == "skip" and not outcome.undecided:
            continue
        advice = ". ".join(filter(None, (_expected(outcome.expected), outcome.remedy)))
        verdict = f"[{STYLES[outcome.verdict]}]{outcome.verdict}[/]"
        drawn.add_row(result.check.id, verdict, escape(outcome.seen), escape(advice))
    return drawn


def _expected(text: str) -> str:
    return f"expected {text}" if text else ""


def summary(one: CheckedJob) -> str:
    """Return how many checks had which verdict, as a sentence."""
    counts = Counter(result.outcome.verdict for result in one.results)
    undecided = sum(result.outcome.undecided for result in one.results)
    parts = [f"{counts[verdict]} {verdict}" for verdict in ("pass", "warn", "fail")]
    rest = counts["skip"] - undecided
    return f"{', '.join(parts)}, {undecided} could not be decided, {rest} do not apply."


def junit(jobs: Sequence[CheckedJob], *, strict: bool) -> str:
    """Return results as JUnit's XML, one suite for a job; a strict run has warnings fail."""
    root = ElementTree.Element("testsuites", name="rankscope preflight")
    for one in jobs:
        cases = [_case(result, strict=strict) for result in one.results]
        counts = {"name": _text(one.title), **_counts(cases)}
        suite = ElementTree.SubElement(root, "testsuite", counts)
        suite.extend(cases)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _counts(cases: Sequence[ElementTree.Element]) -> dict[str, str]:
    def count(tag: str) -> str:
        return str(sum(case.find(tag) is not None for case in cases))

    skipped, failures, errors = count("skipped"), count("failure"), count("error")
    return {"tests": str(len(cases)), "failures": failures, "errors": errors, "skipped": skipped}


def _case(result: Result, *, strict: bool) -> ElementTree.Element:
    outcome = result.outcome
    case = ElementTree.Element("testcase", classname="preflight", name=result.check.id)
    lines = "\n".join(_text(line) for line in _lines(result))
    if outcome.verdict == "fail" or (strict and outcome.verdict == "warn"):
        ElementTree.SubElement(case, "failure", message=_text(outcome.seen)).text = lines
    elif outcome.undecided:
        ElementTree.SubElement(case, "error", message=_text(outcome.seen)).text = lines
    elif outcome.verdict == "skip":
        ElementTree.SubElement(case, "skipped", message=_text(outcome.seen))
    elif outcome.verdict == "warn":
        ElementTree.SubElement(case, "system-out").text = lines
    return case


def _lines(result: Result) -> Iterator[str]:
    yield f"seen: {result.outcome.seen}"
    if result.outcome.expected:
        yield f"expected: {result.outcome.expected}"
    if result.outcome.remedy:
        yield f"what to do: {result.outcome.remedy}"
    yield f"see {result.check.page}"


def _text(value: str) -> str:
    return _NOT_XML.sub("\ufffd", value)
