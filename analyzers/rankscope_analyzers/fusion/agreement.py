"""One finding of what several layers report about the same fault of a node. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace

from rankscope_analyzers.findings.finding import Finding


def agreed(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings, those of one fault as one, in the place of the first."""
    together: dict[Hashable, list[Finding]] = {}
    for finding in findings:
        together.setdefault(_fault(finding), []).append(finding)
    for several in together.values():
        yield _one(several) if len(several) > 1 else several[0]


def _fault(finding: Finding) -> Hashable:
    """Return what findings of one fault have in common; others are equal to themselves only."""
    if not finding.fault:
        return finding
    return finding.job_id, finding.kind, finding.fault, finding.where


def _one(several: list[Finding]) -> Finding:
    """Return the finding that came first, with the evidence and the layers of all."""
    first, *others = sorted(several, key=_began)
    ends = [one.until_unix_seconds for one in several if one.until_unix_seconds is not None]
    layers = dict.fromkeys(layer for one in (first, *others) for layer in one.layers)
    return replace(
        first,
        severity="page" if any(one.severity == "page" for one in several) else "ticket",
        until_unix_seconds=max(ends) if len(ends) == len(several) else None,
        evidence=tuple(dict.fromkeys(part for one in (first, *others) for part in one.evidence)),
        source=" or ".join(dict.fromkeys(one.source for one in (first, *others) if one.source)),
        agreeing=tuple(layer for layer in layers if layer != first.layer),
    )


def _began(finding: Finding) -> float:
    """Sort key: what was already there at the first observation came before everything else."""
    since = finding.since_unix_seconds
    return float("-inf") if since is None else since
