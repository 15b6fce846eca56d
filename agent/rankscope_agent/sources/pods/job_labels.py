"""Whose a job is: project, class, owner and team, by pod labels that each organisation chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankscope_agent.sources.pods.records import Pod

FACTS = ("project", "class", "owner", "team")

DEFAULT_LABELS: Mapping[str, Sequence[str]] = {
    "project": ("rankscope.io/project", "project", "app.kubernetes.io/part-of"),
    "class": ("rankscope.io/class", "kueue.x-k8s.io/priority-class", "job-class"),
    "owner": ("rankscope.io/owner", "owner", "user"),
    "team": ("rankscope.io/team", "team"),
}
"""Labels that are asked where the administrator names none: our own, then names in common use."""


def parse_job_labels(text: str) -> Mapping[str, Sequence[str]]:
    """Read `project=LABEL,team=LABEL`; a fact named several times prefers the first of its labels.

    Raises:
        ValueError: a part is no such pair.
    """
    chosen: dict[str, list[str]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        fact, equals, key = part.partition("=")
        if fact not in FACTS or not equals or not key:
            raise ValueError(f"takes FACT=LABEL with FACT one of {', '.join(FACTS)}, got {part!r}")
        chosen.setdefault(fact, []).append(key)
    return {fact: chosen.get(fact, DEFAULT_LABELS[fact]) for fact in FACTS}


def job_facts(pod: Pod, labels: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """Return every fact of a pod, empty where no label gives it."""
    return {
        fact: next((pod.labels[key] for key in keys if pod.labels.get(key)), "")
        for fact, keys in labels.items()
    }
