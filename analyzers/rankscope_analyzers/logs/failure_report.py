"""Shows why an attempt of a job failed: as text for people and as JSON for programs.

The JSON's members are part of the product's interface (docs/job_logs.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import chain, islice
from typing import Any

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.log import FailureLog
from rankscope_agent.contract.failures.signs import FailureSigns, Quote
from rankscope_agent.contract.failures.verdict import FROM_OUTSIDE, Attempt, Failure, Victim, decide
from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_analyzers.intake import log_sources
from rankscope_analyzers.intake.log_files import LogError
from rankscope_analyzers.logs.not_read import not_read_lines
from rankscope_analyzers.logs.recognised import is_text
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.name_lists import ranks_named, runs_named, shortened
from rankscope_analyzers.text.sanitize import visible

MAX_LISTED = 4096
"""Ranks written out individually for each attempt."""

TEXT_LISTED = 8
"""Further failures in the text; --json has them all."""

TEXT_QUOTED = 5
"""Unrecognised lines in the text; --json has them all."""

OTHER_RUNBOOK = "RankscopePodFailed"
RUNBOOKS: Mapping[str, str] = {
    causes.CUDA_ERROR: "RankscopeGpuProgramFault",
    causes.HOST_OOM: "RankscopeOomRepeated",
    causes.NCCL_ERROR: "RankscopeNcclIbErrors",
    causes.COLLECTIVE_TIMEOUT: "RankscopeNcclCollectiveTimeout",
    causes.RENDEZVOUS: "RankscopeMissingRank",
    causes.STORAGE: "RankscopeSlowStorage",
    causes.NODE_LOST: "RankscopeNodeReboot",
    causes.NONE: "",
}
"""The runbook for each cause; causes without one are in `OTHER_RUNBOOK`."""

ADDRESS = re.compile(r"\[[0-9a-fA-F.:]{2,64}\]:\d{1,5}")
"""A peer's address and port, as gloo prints them."""

BEFORE_START = frozenset({causes.MISSING_IMAGE, causes.MISSING_SECRET, causes.MISSING_MOUNT})
"""Causes that keep a pod from starting, before there is any rank."""


class JobLogExplanation:
    """What a job's logs show of its failure.

    Args:
        files: logs of one job, or directories of them; `-` is standard input.

    Raises:
        LogError: one cannot be read, or none has any text.
    """

    def __init__(self, files: Sequence[str]) -> None:
        signs, not_read = FailureSigns(), list[str]()
        logs = log_sources.opened_in_turn(files, not_read.append)
        texts = [_read(name, chunks, signs) for name, chunks in logs]
        self._not_read = not_read
        self._attempts = decide(signs)
        self._quotes = tuple(signs.quotes.values())
        self._restarts = signs.attempts
        self._beyond_limits = signs.beyond_limits
        if not (any(texts) or self._attempts or self._quotes):
            nothing = f"no line of text, so nothing is known: {', '.join(files)}"
            raise LogError(visible(shortened([nothing, *not_read])))

    @property
    def _last(self) -> Attempt | None:
        return self._attempts[-1] if self._attempts else None

    @property
    def _cause(self) -> str:
        if self._last is not None:
            return self._last.cause
        return causes.UNKNOWN if self._quotes or self._not_read else causes.NONE

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        last = self._last
        return {
            "failed": True if last is not None else None if self._cause != causes.NONE else False,
            "cause": self._cause,
            "certain": bool(last and last.first and last.first.certain),
            "rank": last.first.rank if last and last.first else None,
            "exception": _exception(last),
            "verdict": sentence(last, self._quotes, self._not_read),
            "action": causes.ACTIONS[self._cause],
            "runbook": runbook(self._cause) or None,
            "attempts": [_attempt(attempt) for attempt in self._attempts],
            "unexplained": [quote_object(quote) for quote in self._quotes],
            "restarts": self._restarts,
            "beyond_limits": self._beyond_limits,
            "not_read": self._not_read,
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        last = self._last
        yield f"verdict: {sentence(last, self._quotes, self._not_read)}"
        yield f"action: {causes.ACTIONS[self._cause]}"
        if last is not None:
            yield from _attempt_lines(last)
        for attempt in self._attempts[:-1]:
            yield f"attempt {attempt.number}: {attempt.cause}: {sentence(attempt)}"
        yield from self._quote_lines()
        if self._cause != causes.NONE:
            yield f"runbook: {runbooks.command(_book(self._cause))}"
        if self._beyond_limits:
            yield f"not read: {self._beyond_limits} signs beyond limits"
        yield from not_read_lines(self._not_read)

    def _quote_lines(self) -> Iterator[str]:
        """Yield unexplained lines; if the cause is known, only their number."""
        shown = self._quotes[:TEXT_QUOTED] if self._cause == causes.UNKNOWN else ()
        for quote in shown:
            where = visible(f"{quote.source}:{quote.line}")
            yield f"not explained: {quote.count}x {where}: {visible(quote.text)}"
        if len(self._quotes) > len(shown):
            yield f"not explained: {len(self._quotes) - len(shown)} more kinds of lines in --json"


def runbook(cause: str) -> str:
    """Return the path of the runbook for a cause, empty if none is needed."""
    return runbooks.path(_book(cause))


def _book(cause: str) -> str:
    return RUNBOOKS.get(cause, OTHER_RUNBOOK)


def _read(name: str, chunks: Iterable[bytes], signs: FailureSigns) -> bool:
    """Read a log; return True if it has any text."""
    framing, log, text = Unframer(), FailureLog(name, signs), False
    for chunk in chunks:
        text = text or is_text(chunk)
        log.feed(framing.feed(chunk))
    log.feed(framing.finish())
    log.finish()
    return text


def sentence(
    attempt: Attempt | None, quotes: Sequence[Quote] = (), not_read: Sequence[str] = ()
) -> str:
    """Return who failed first and why, or what is not understood."""
    if attempt is None and quotes:
        return (
            "whether the job failed is unknown: these logs report errors of no known kind, or that"
            f" it survived, first {visible(quotes[0].text)}"
        )
    if attempt is None and not_read:
        return (
            "whether the job failed is unknown: no sign of a failure is in what was read, and not"
            " all of these logs could be read"
        )
    if attempt is None:
        return "no sign of a failure that is known is in these logs"
    if attempt.first is None:
        return _sentence_of_victims(attempt)
    first = attempt.first
    why = causes.CAUSES[first.cause]
    # It was certainly killed, even if the sender is unknown.
    likely = "" if first.certain or first.cause == causes.KILLED else ", most likely"
    where = f" ({first.frame})" if first.frame else ""
    alike = sum(other.cause == first.cause for other in attempt.others)
    also = f"; {alike} more failed in the same way" if alike else ""
    return f"{_who(first)}{likely}: {why}: {visible(first.text)}{visible(where)}{also}"


def _who(first: Failure) -> str:
    if first.rank is not None:
        return f"rank {first.rank} failed first"
    if first.cause in FROM_OUTSIDE or first.cause in BEFORE_START:
        return "the job was ended or could not start"
    return "a rank that these logs do not name failed first"


def _sentence_of_victims(attempt: Attempt) -> str:
    named = [victim.rank for victim in attempt.victims if victim.rank is not None]
    who = ranks_named(named) if named else "all that speak"
    if attempt.cause == causes.COLLECTIVE_TIMEOUT:
        why = "waited for others in a collective until its time was over"
    else:
        why = "lost others or was ended by its launcher"
    silent = f"; {runs_named(attempt.silent)} silent" if attempt.silent else ""
    return f"{who} {why}, and the rank that failed first is not in these logs{silent}"


def _exception(attempt: Attempt | None) -> str | None:
    return attempt.first.text if attempt and attempt.first else None


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "cause": attempt.cause,
        "first": _failure(attempt.first) if attempt.first else None,
        "also_failed": [_failure(other) for other in attempt.others[:MAX_LISTED]],
        "victims": [{"rank": v.rank, "why": v.why} for v in attempt.victims[:MAX_LISTED]],
        "silent_ranks": list(islice(chain(*attempt.silent), MAX_LISTED)),
        "verdict": sentence(attempt),
    }


def quote_object(quote: Quote) -> dict[str, Any]:
    """Return an unexplained line as JSON-ready values."""
    return {
        "file": quote.source,
        "line": quote.line,
        "text": quote.text,
        "count": quote.count,
    }


def _failure(failure: Failure) -> dict[str, Any]:
    moment = None
    if failure.time is not None:
        moment = datetime.fromtimestamp(failure.time, tz=timezone.utc).isoformat()
    code = failure.exit_code
    return {
        "rank": failure.rank,
        "cause": failure.cause,
        "certain": failure.certain,
        "exception": failure.text,
        "frame": failure.frame or None,
        "exit_code": code if code is not None and code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "time": moment,
        "torchrun_root_cause": failure.root,
        "file": failure.source,
        "line": failure.line or None,
    }


def _attempt_lines(attempt: Attempt) -> Iterator[str]:
    first = attempt.first
    if first is not None:
        where = f"{first.source}:{first.line}" if first.line else first.source
        yield f"cause: {first.cause}, seen in {visible(where)}"
    for other in attempt.others[:TEXT_LISTED]:
        who = "unknown" if other.rank is None else other.rank
        yield f"also failed: rank {who}: {other.cause}: {visible(other.text)}"
    if len(attempt.others) > TEXT_LISTED:
        yield f"also failed: {len(attempt.others) - TEXT_LISTED} more in --json"
    yield from _victim_lines(attempt.victims)


def _victim_lines(victims: Sequence[Victim]) -> Iterator[str]:
    """Yield one line for each way in which other failures dragged ranks down."""
    by_why: dict[str, list[int]] = {}
    for victim in victims:
        by_why.setdefault(_way(victim.why), []).append(-1 if victim.rank is None else victim.rank)
    for why, ranks in list(by_why.items())[:TEXT_LISTED]:
        known = [rank for rank in ranks if rank >= 0]
        yield f"victims: {ranks_named(known) if known else 'rank unknown'}: {visible(why)}"


def _way(why: str) -> str:
    """Return how a victim was hit without its peer's address, to show equal ones together."""
    return ADDRESS.sub("[...]", why)[:160]
