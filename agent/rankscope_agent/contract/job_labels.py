"""A job's project, class, owner and team, from pod labels that each organisation chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FACTS = ("project", "class", "owner", "team")

DEFAULT_LABELS: Mapping[str, Sequence[str]] = {
    "project": ("rankscope.io/project", "project", "app.kubernetes.io/part-of"),
    "class": ("rankscope.io/class", "kueue.x-k8s.io/priority-class", "job-class"),
    "owner": ("rankscope.io/owner", "owner", "user"),
    "team": ("rankscope.io/team", "team"),
}
"""Labels that are read unless the administrator names others: our own, then names in common use."""


def parse_job_labels(text: str) -> Mapping[str, Sequence[str]]:
    """Read `project=LABEL,team=LABEL`; of a fact's labels, earlier ones take precedence.

    Raises:
        ValueError: a part is not such a pair.
    """
    chosen: dict[str, list[str]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        fact, equals, key = part.partition("=")
        if fact not in FACTS or not equals or not key:
            raise ValueError(f"takes FACT=LABEL with FACT one of {', '.join(FACTS)}, got {part!r}")
        chosen.setdefault(fact, []).append(key)
    return {fact: chosen.get(fact, DEFAULT_LABELS[fact]) for fact in FACTS}
