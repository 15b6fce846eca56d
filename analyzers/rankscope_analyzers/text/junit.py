"""JUnit's XML, which CI systems read: suites of cases with their results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

End = Literal["passed", "failure", "error", "skipped"]

# Characters that XML 1.0 cannot hold.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a suite.

    Args:
        end: its result.
        message: the reason in one line; not for cases that passed.
        details: further lines; for a case that passed they are its output, if any.
    """

    name: str
    end: End
    message: str = ""
    details: str = ""


def details(seen: str, expected: str, remedy: str, page: str) -> str:
    """Return the lines of a case: what was seen and expected, what to do, and where to read more.

    Args:
        seen: what was found.
        expected: empty if there is nothing to compare with.
        remedy: empty if there is nothing to do.
        page: of the documentation.
    """
    lines = [f"seen: {seen}"]
    lines += [f"expected: {expected}"] if expected else []
    lines += [f"what to do: {remedy}"] if remedy else []
    return "\n".join((*lines, f"see {page}"))


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases of one subject."""

    name: str
    cases: Sequence[Case]


def document(command: str, suites: Sequence[Suite]) -> str:
    """Return the XML of the results of a `rankscope` subcommand."""
    root = ElementTree.Element("testsuites", name=f"rankscope {command}")
    for suite in suites:
        counts = {
            "tests": len(suite.cases),
            "failures": _count(suite, "failure"),
            "errors": _count(suite, "error"),
            "skipped": _count(suite, "skipped"),
        }
        texts = {key: str(value) for key, value in counts.items()}
        element = ElementTree.SubElement(root, "testsuite", {"name": _text(suite.name), **texts})
        element.extend(_element(command, case) for case in suite.cases)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _count(suite: Suite, end: End) -> int:
    return sum(case.end == end for case in suite.cases)


def _element(command: str, case: Case) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=command, name=_text(case.name))
    if case.end == "passed":
        if case.details:
            ElementTree.SubElement(element, "system-out").text = _text(case.details)
        return element
    end = ElementTree.SubElement(element, case.end, message=_text(case.message))
    if case.details:
        end.text = _text(case.details)
    return element


def _text(value: str) -> str:
    return _NOT_XML.sub("\ufffd", value)
