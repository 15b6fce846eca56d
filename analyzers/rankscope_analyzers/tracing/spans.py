"""Spans of a trace, and their identifiers. Pure.

Identifiers derive from what a span is about: parts of one job that are sent hours apart, or by two
successive watches, belong together although the job's own span comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s

Value = str | int | float | Sequence[str] | Sequence[int]

TRACE_BYTES, SPAN_BYTES = 16, 8
"""Bytes of identifiers: https://www.w3.org/TR/trace-context/#traceparent-header"""

JOB_ID = "rankscope.job.id"
ATTEMPT = "rankscope.attempt.number"
KIND = "rankscope.incident.kind"
RANKS = "rankscope.incident.ranks"
SEVERITY = "rankscope.incident.severity"
RUNBOOK = "rankscope.incident.runbook"
STEP = "rankscope.step"
NAMESPACE = "k8s.namespace.name"
NODE = "k8s.node.name"
ERROR_TYPE = "error.type"
"""The last three are OpenTelemetry's: https://opentelemetry.io/docs/specs/semconv/registry/"""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that has ended.

    Args:
        name: what it is, from a small set: job, attempt, incident or checkpoint.
        trace: identifier of the job.
        identity: its own.
        parent: identifier of the span that it belongs to, None for a job.
        start: Unix time.
        end: likewise.
        attributes: by name.
        error: in words, empty if nothing went wrong.
    """

    name: str
    trace: int
    identity: int
    parent: int | None
    start: float
    end: float
    attributes: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""


def trace_of(job_id: str, began: float) -> int:
    """Return the trace of the job of this name that began then (Unix time)."""
    return _number(TRACE_BYTES, job_id, f"{began:.3f}")


def identity_of(trace: int, *of: str) -> int:
    """Return the identifier of a span within its trace, from what it is about."""
    return _number(SPAN_BYTES, str(trace), *of)


def _number(size: int, *texts: str) -> int:
    text = "\n".join(texts).encode("utf-8", "surrogateescape")
    # Zero would be invalid.
    return int.from_bytes(blake2s(text, digest_size=size).digest(), "big") or 1
