"""The errors in a job's logs, the earliest of the newest attempt first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope_agent.contract.failures.log import FailureLog
from rankscope_agent.contract.failures.signs import FailureSign, FailureSigns, Quote
from rankscope_agent.contract.failures.verdict import Attempt, decide
from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_analyzers.intake.log_files import LogError
from rankscope_analyzers.logs.failure_report import quote_object, sentence
from rankscope_analyzers.logs.recognised import is_text


@dataclass(frozen=True, slots=True)
class AttemptErrors:
    """One attempt: a sentence on which rank failed first and why, and its errors in order."""

    attempt: Attempt
    sentence: str
    errors: tuple[FailureSign, ...]


@dataclass(frozen=True, slots=True)
class JobErrors:
    """The failed attempts of a job, the newest first, and errors that need not have ended any."""

    attempts: tuple[AttemptErrors, ...]
    unexplained: tuple[Quote, ...]


def read(logs: Mapping[str, Iterable[bytes]]) -> JobErrors:
    """Return the failed attempts, and what else the logs report as errors.

    Args:
        logs: chunks of bytes of each, by name.

    Raises:
        LogError: none has any text.
    """
    signs, text = FailureSigns(), False
    for name, chunks in logs.items():
        framing, log = Unframer(), FailureLog(name, signs)
        for chunk in chunks:
            text = text or is_text(chunk)
            log.feed(framing.feed(chunk))
        log.feed(framing.finish())
        log.finish()
    if not text and not signs.signs:
        raise LogError("there is no line of text in these logs, so nothing is known")
    attempts = (
        AttemptErrors(attempt, sentence(attempt), tuple(_ordered(signs.signs, attempt)))
        for attempt in reversed(decide(signs))
    )
    return JobErrors(tuple(attempts), tuple(signs.quotes.values()))


def _ordered(signs: Sequence[FailureSign], attempt: Attempt) -> Iterator[FailureSign]:
    """Yield an attempt's errors: the first failure, then by time; those without a time last."""
    own = [sign for sign in signs if sign.location.attempt == attempt.number]
    first = attempt.first

    def key(sign: FailureSign) -> tuple[bool, bool, float, str, int]:
        at = sign.location
        is_first = first is not None and (at.source, at.line) == (first.source, first.line)
        return not is_first, at.time is None, at.time or 0.0, at.source, at.line

    yield from sorted(own, key=key)


def as_object(found: JobErrors) -> dict[str, Any]:
    """Return JSON-ready values, of the attempts the newest first."""
    return {
        "attempts": [
            {
                "number": one.attempt.number,
                "cause": one.attempt.cause,
                "verdict": one.sentence,
                "errors": [_error(sign) for sign in one.errors],
            }
            for one in found.attempts
        ],
        "unexplained": [quote_object(quote) for quote in found.unexplained],
    }


def _error(sign: FailureSign) -> dict[str, Any]:
    at = sign.location
    return {
        "time": at.time,
        "rank": None if at.local else at.rank,
        "local_rank": at.rank if at.local else None,
        "cause": sign.meaning.cause,
        "text": sign.text,
        "frame": sign.frame,
        "file": at.source,
        "line": at.line,
    }
