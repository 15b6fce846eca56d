"""Verdicts as JSON; the schema is part of the product's interface.

docs/verdict_json.md describes it; `verdict_text` shows the same to people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankscope_analyzers.findings.finding import Evidence, Finding
from rankscope_analyzers.reports import verdict_remarks
from rankscope_analyzers.stragglers.verdict import Verdict
from rankscope_analyzers.stragglers.what_if import WhatIf
from rankscope_analyzers.text import runbooks


def as_object(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON-ready values; seconds and fractions, null for unknown."""
    cause = verdict.cause
    return {
        "verdict": {
            "class": cause.kind if cause else None,
            "ranks": list(cause.where.ranks) if cause else [],
            "pp_stage": cause.where.stage if cause else -1,
            "lost_fraction": round(cause.known_cost.lost_fraction, 6) if cause else 0.0,
            "confidence": round(verdict.confidence, 4),
            **(_finding_object(cause) if cause else {"summary": no_straggler(verdict)}),
        },
        "other_findings": [
            {
                "class": found.kind,
                "ranks": list(found.where.ranks),
                "pp_stage": found.where.stage,
                **_finding_object(found),
            }
            for found in verdict.others
        ],
        "what_if": _what_if_object(verdict.what_if),
        "unobserved": list(verdict.unobserved),
        "asides": list(verdict.asides),
        "clock_offsets": [
            {
                "node": offset.node,
                "offset_seconds": round(offset.seconds, 6),
                "error_seconds": round(offset.error_seconds, 6),
                "drift_ppm": round(offset.drift * 1e6, 3),
            }
            for offset in verdict.clock_offsets
        ],
        "steps_judged": verdict.steps,
        "median_step_seconds": verdict.median_step_seconds,
        "naive": {"rank": verdict.naive.rank, "step_time_spread": round(verdict.naive.spread, 6)},
        "ranks": [
            {
                "rank": times.rank,
                "node": times.node,
                "step_seconds": times.step,
                "data_seconds": times.data,
                "compute_seconds": times.compute,
                "sync_seconds": times.sync,
                "cpu_wait_seconds": times.cpu_wait,
            }
            for times in verdict.ranks
        ],
    }


def _what_if_object(ideals: WhatIf | None) -> dict[str, Any] | None:
    if ideals is None:
        return None
    return {
        name: {
            "slowdown": round(ideal.slowdown, 4),
            "lost_fraction": round(ideal.lost_fraction, 6),
            "gpu_hours_lost": round(ideal.gpu_hours, 6),
        }
        for name, ideal in (
            ("all_equal", ideals.all_equal),
            ("stage_weights_kept", ideals.stage_weights_kept),
        )
    }


def _finding_object(found: Finding) -> dict[str, Any]:
    return {
        "summary": found.summary,
        "nodes": [location.node for location in found.where.culprits],
        "gpus": [int(location.gpu) if location.gpu else None for location in found.where.culprits],
        "severity": found.severity,
        "owner": found.owner,
        "since_unix_seconds": found.since_unix_seconds,
        "until_unix_seconds": found.until_unix_seconds,
        "gpu_hours_lost": round(found.known_cost.gpu_hours, 6),
        "action": found.action,
        "runbook": runbooks.path(found.runbook),
        "evidence": evidence_objects(found.evidence),
    }


def evidence_objects(evidence: Sequence[Evidence]) -> list[dict[str, Any]]:
    """Return evidence as JSON-ready values."""
    return [
        {
            "source": item.source,
            "observed": item.observed,
            "expected": item.expected,
            "unit": item.unit,
            "meaning": item.meaning,
        }
        for item in evidence
    ]


def no_straggler(verdict: Verdict) -> str:
    """Return the sentence about a job without a culprit."""
    if not verdict.confidence:
        return f"no verdict: {verdict.why_none}"
    return f"{verdict_remarks.no_straggler(verdict)} (confidence {verdict.confidence:.2f})"
