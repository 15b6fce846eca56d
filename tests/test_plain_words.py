"""Modules and texts for users keep to words that an engineer of this field would use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_agent.settings.config import OPTIONS
from rankscope_dashboards.rules.alerts import ALERTS

ROOT = Path(__file__).parent.parent
PACKAGES = (
    ROOT / "agent/rankscope_agent",
    ROOT / "analyzers/rankscope_analyzers",
    ROOT / "dashboards/rankscope_dashboards",
)

NOT_IN_MODULE_NAMES = {
    *("inert", "patience", "place", "places", "room", "said", "sight", "told", "trouble"),
    *("utils", "vetting", "whereabouts"),
}
"""The field says sanitize, timeout, location, memory, visibility, problem and validation."""

NOT_IN_TEXTS = (
    *("amiss", "as last told", "for want of", "goes on firing", "mend(?:ed|s)?"),
    *("parted by", "time and again", "was told"),
)
"""Plain words say the same: wrong, reported, lack of, keeps firing, repaired."""


def texts():
    yield from ((metric.name, metric.help) for metric in CATALOGUE)
    yield from ((option.flag, option.help) for option in OPTIONS.values())
    for alert in ALERTS:
        yield alert.name, f"{alert.summary} {alert.description} {alert.why} {alert.needs}"
    for runbook in (ROOT / "docs/runbooks").glob("*.md"):
        yield runbook.name, runbook.read_text(encoding="utf-8")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_modules_are_named_by_the_fields_terms(package):
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if NOT_IN_MODULE_NAMES & set(path.stem.split("_"))
    }
    assert not found


@pytest.mark.parametrize("words", NOT_IN_TEXTS)
def test_texts_for_users_are_in_plain_words(words):
    pattern = re.compile(rf"\b{words}\b")
    assert not [name for name, text in texts() if pattern.search(text)]
