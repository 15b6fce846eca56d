"""Determines which rank of an attempt failed first and why, from signs: pure.

A rank is a victim if it only reports that another one went away, or if its launcher ended it. The
remaining ranks are ordered by the times that launchers print, or else by their order in one log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.messages import (
    KILLED_TEXT,
    Meaning,
    classify_exit,
    exit_text,
)
from rankscope_agent.contract.failures.signs import (
    FailureSign,
    FailureSigns,
    Kind,
    RankEnd,
    SignLocation,
)
from rankscope_agent.contract.failures.silence import silent_ranks

FROM_OUTSIDE = frozenset({causes.PREEMPTED, causes.CANCELLED, causes.DEADLINE, causes.NODE_LOST})
"""Causes that hit all ranks alike: what follows them is their consequence."""


SLURM_CANCELS = " CANCELLED AT "
"""Slurm cancels the steps of a job that it ends for a reason, which it gives for the job alone."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A rank that failed on its own.

    Args:
        rank: None if the logs do not show it.
        certain: whether the cause is proven, not only likely.
        text: the last line of its traceback, or whatever else shows the failure.
        frame: innermost frame of the traceback.
        exit_code: negative for a signal.
        root: whether torchrun considers it the root cause.
        weak: whether its exit code is the only indication.
        ended_at: when it ended according to its launcher, in seconds comparable only within the
            job.
        local: whether its rank is local to its node because nothing maps it to a global one.
    """

    rank: int | None
    cause: str
    certain: bool
    text: str
    frame: str
    exit_code: int | None
    source: str
    line: int
    time: float | None
    ended_at: float | None
    root: bool
    weak: bool
    local: bool = False


@dataclass(frozen=True, slots=True)
class Victim:
    """A rank that went down because of another one's failure, and how that showed."""

    rank: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of the job.

    Args:
        first: the rank that failed first; None if unknown.
        others: other ranks that failed on their own.
        silent: ranks from 0 to the highest seen that left no trace, as runs.
    """

    number: int
    cause: str
    first: Failure | None
    others: tuple[Failure, ...]
    victims: tuple[Victim, ...]
    silent: tuple[range, ...]


def decide(signs: FailureSigns) -> tuple[Attempt, ...]:
    """Return a verdict on each failed attempt, the newest last."""
    failed = {s.location.attempt for s in signs.signs if s.kind != "survived"}
    numbers = sorted(failed | {end.attempt for end in signs.ends})
    return tuple(_attempt(signs, number) for number in numbers)


TIERS: tuple[frozenset[Kind], ...] = (
    frozenset({"exception", "exit", "platform"}),
    frozenset({"exception", "exit", "platform", "complaint"}),
    frozenset({"exception", "exit", "platform", "complaint", "echo"}),
)
"""Signs that are considered together; weaker ones count only if stronger ones name no rank."""

SURVIVED: frozenset[Kind] = frozenset({"exception", "platform", "complaint", "echo", "survived"})
"""Signs that count if something failed and nothing else shows why."""


def _attempt(signs: FailureSigns, number: int) -> Attempt:
    return _with_survived(signs, number, _by_tiers(signs, number))


def _by_tiers(signs: FailureSigns, number: int) -> Attempt:
    """Judge by the strongest signs that name a failed rank."""
    best = _judged(signs, number, TIERS[0])
    for kinds in TIERS[1:]:
        if best.first is not None and not best.first.weak and best.cause != causes.UNKNOWN:
            return best
        with_more = _judged(signs, number, kinds)
        if "echo" in kinds and not _adds(with_more, best):
            break
        if with_more.first is not None or with_more.victims:
            best = with_more
    return best


def _with_survived(signs: FailureSigns, number: int, known: Attempt) -> Attempt:
    """Explain a failure of unknown cause by errors that the program seems to have survived.

    Python prints a traceback before the steps that wait in a buffer of standard output.
    """
    if known.first is None:
        return _by_tiers(signs.blaming(number), number) if known.victims else known
    if known.cause == causes.UNKNOWN:
        with_more = _judged(signs, number, SURVIVED)
        return known if with_more.first is None else with_more
    if _is_exit(known.first) or (known.cause in FROM_OUTSIDE and any(map(_is_exit, known.others))):
        raised = [replace(s, kind="exception") if s.frame else s for s in signs.signs]
        return _judged(replace(signs, signs=raised), number, TIERS[0])
    return known


def _is_exit(failure: Failure) -> bool:
    """Return True for an end with an exit code that nothing explains."""
    return failure.weak and failure.cause == causes.EXIT_CODE


def _adds(echoed: Attempt, known: Attempt) -> bool:
    """Return True if a launcher's report adds information: which rank was killed first."""
    if known.first is not None or echoed.first is None:
        return False  # about a rank that ended for no known reason the launcher has nothing to add
    return not known.victims or echoed.cause in causes.KILLS


def _judged(signs: FailureSigns, number: int, kinds: frozenset[Kind]) -> Attempt:
    ends: dict[int | None, RankEnd] = {
        end.rank: end for end in signs.ends if end.attempt == number and end.rank is not None
    }
    relevant = [s for s in signs.signs if s.location.attempt == number and s.kind in kinds]
    seen = _by_rank(relevant, ends.values())
    failures, victims = _sort(seen, ends)
    aftermath = [
        end
        for rank, end in ends.items()
        if any(sign.kind == "exception" for sign in seen.get(rank, ()))
    ]
    failures = _join_nameless(_explained(_without_aftermath(failures, aftermath)))
    failures, victims = _join_nameless_victims(failures, victims)
    ordered = sorted(failures, key=_order(failures))
    first = ordered[0] if ordered else None
    spoken = {v.rank for v in victims} | {f.rank for f in failures}
    if spoken:
        spoken |= {at.rank for at in signs.rank_errors.values() if at.attempt == number}
    return Attempt(
        number=number,
        cause=first.cause if first else _cause_of_victims(seen),
        first=first,
        others=tuple(ordered[1:]),
        victims=tuple(v for v in victims if v.rank is None or v.rank not in _ranks(failures)),
        silent=silent_ranks(spoken, signs.highest_rank),
    )


def _ranks(failures: Iterable[Failure]) -> set[int | None]:
    return {failure.rank for failure in failures}


def _by_rank(
    signs: Iterable[FailureSign], ends: Iterable[RankEnd]
) -> dict[int | None, list[FailureSign]]:
    """Sort signs by global rank; torchrun's table maps local ranks to global ones."""
    globally = {(end.source, end.local_rank): end.rank for end in ends}
    seen: dict[int | None, list[FailureSign]] = defaultdict(list)
    for sign in signs:
        location = sign.location
        rank = location.rank
        if location.local:
            rank = globally.get((location.source, rank), rank)
        seen[rank].append(sign)
    return seen


def _sort(
    seen: dict[int | None, list[FailureSign]], ends: dict[int | None, RankEnd]
) -> tuple[list[Failure], list[Victim]]:
    """Separate the ranks that failed from those they took down."""
    failures: list[Failure] = []
    victims: list[Victim] = []
    for rank in sorted({*seen, *ends}, key=lambda rank: (rank is None, rank or 0)):
        signs, end = seen.get(rank, []), ends.get(rank)
        own = [s for s in signs if s.kind != "exit" and not s.meaning.victim]
        lost = [s for s in signs if s.kind != "exit" and s.meaning.victim]
        if rank is None:
            failures.extend(_failure(rank, sign, end) for sign in own)
            victims.extend(Victim(rank, sign.text) for sign in lost)
        elif own:
            failures.append(_failure(rank, min(own, key=_weight), end))
        elif lost:
            victims.append(Victim(rank, lost[0].text))
        else:
            _sort_by_exit(rank, signs, end, failures, victims)
    return failures, victims


def _weight(sign: FailureSign) -> tuple[bool, bool, bool, int]:
    """Order the signs of one rank: exceptions first, echoes last, certain ones before others."""
    is_echo = sign.kind == "echo"
    return sign.kind != "exception", is_echo, not sign.meaning.certain, sign.location.line


def _failure(rank: int | None, sign: FailureSign, end: RankEnd | None) -> Failure:
    return Failure(
        rank=rank,
        cause=sign.meaning.cause,
        certain=sign.meaning.certain,
        text=sign.text,
        frame=sign.frame,
        exit_code=end.exit_code if end else sign.exit_code,
        source=sign.location.source,
        line=sign.location.line,
        time=sign.location.time,
        ended_at=end.ended_at if end else None,
        root=end.root if end else False,
        weak=False,
        local=sign.location.local and end is None,
    )


def _sort_by_exit(
    rank: int | None,
    signs: Sequence[FailureSign],
    end: RankEnd | None,
    failures: list[Failure],
    victims: list[Victim],
) -> None:
    """Judge a rank of which only the end is known."""
    relevant = next((s for s in signs if s.exit_code is not None), None)
    code = end.exit_code if end and end.exit_code is not None else relevant and relevant.exit_code
    if not code:
        return
    text = exit_text(code)
    meaning = classify_exit(code)
    if meaning.victim:
        victims.append(Victim(rank, text))
        return
    sign = relevant or _sign_of(end, meaning)
    if sign is not None:
        found = _failure(rank, replace(sign, meaning=meaning, text=text, exit_code=code), end)
        failures.append(replace(found, weak=True))


def _sign_of(end: RankEnd | None, meaning: Meaning) -> FailureSign | None:
    """Create a sign from torchrun's table alone."""
    if end is None:
        return None
    location = SignLocation(end.source, 0, end.attempt, end.rank, False, None)
    return FailureSign("exit", meaning, location, "", exit_code=end.exit_code)


def _explained(failures: list[Failure]) -> list[Failure]:
    """Leave out signs that only say that something failed or was cancelled if others say why."""
    known = [failure for failure in failures if failure.cause != causes.UNKNOWN]
    if any(f.cause in FROM_OUTSIDE - {causes.CANCELLED} and f.certain for f in known):
        known = [f for f in known if f.cause != causes.CANCELLED or SLURM_CANCELS not in f.text]
    return known or failures


def _without_aftermath(failures: list[Failure], ends: Sequence[RankEnd]) -> list[Failure]:
    """Leave out crashes during exit: of ranks that had already reported why they end."""
    crashed = sum(classify_exit(end.exit_code or 0).cause == causes.NATIVE_CRASH for end in ends)
    kept = []
    for failure in failures:
        if failure.rank is None and failure.cause == causes.NATIVE_CRASH and crashed > 0:
            crashed -= 1
        else:
            kept.append(failure)
    return kept


def _join_nameless(failures: list[Failure]) -> list[Failure]:
    """Assign messages without a rank to ranks of which only a matching end is known."""
    nameless = [f for f in failures if f.rank is None]
    named = sorted((f for f in failures if f.rank is not None), key=lambda f: (not f.root, f.rank))
    joined = []
    for failure in named:
        known_as = [f for f in nameless if failure.weak and _fits(f, failure)]
        fitting = min(known_as, key=lambda f: not f.certain, default=None)
        if fitting is not None:
            nameless.remove(fitting)
            failure = replace(
                fitting,
                rank=failure.rank,
                exit_code=failure.exit_code,
                ended_at=failure.ended_at,
                root=failure.root,
            )
        joined.append(failure)
    # A shell's `Killed` repeats what the launcher has reported.
    known = {f.cause for f in joined}
    killed = causes.HOST_OOM in known
    for failure in nameless:
        is_known = failure.cause in known or (
            failure.cause == causes.KILLED and known & causes.KILLS
        )
        again = is_known and (not failure.certain or failure.cause in FROM_OUTSIDE)
        # The kernel's and Slurm's reports that memory was full, of a task that srun names.
        again = again or (killed and failure.cause == causes.HOST_OOM and not failure.frame)
        if not again:
            joined.append(failure)
        known.add(failure.cause)
    return joined


def _join_nameless_victims(
    failures: list[Failure], victims: list[Victim]
) -> tuple[list[Failure], list[Victim]]:
    """Assign victims' messages without a rank to ranks of which only the end is known.

    Ranks that their launcher ended come first: only messages beyond their number can belong to a
    rank that ended on its own.
    """
    nameless = [v for v in victims if v.rank is None]
    named = [v for v in victims if v.rank is not None]
    ended = [v for v in named if v.why.startswith(KILLED_TEXT[:8])]
    spare = max(0, len(nameless) - len(ended))
    taken = [f for f in failures if f.weak and f.cause == causes.EXIT_CODE][:spare]
    named += [Victim(f.rank, v.why) for f, v in zip(taken, nameless, strict=False)]
    rest = nameless[len(taken) + len(ended) :]
    return [f for f in failures if f not in taken], named + rest


def _fits(nameless: Failure, ended: Failure) -> bool:
    """Return True if a message without a rank may be from a rank that ended in a certain way."""
    if nameless.cause in FROM_OUTSIDE:
        return False
    by_signal = ended.cause != causes.EXIT_CODE
    alike = nameless.cause == ended.cause or {nameless.cause, ended.cause} == causes.KILLS
    return alike if by_signal else nameless.cause not in causes.SIGNALLED


Key = tuple[float, ...]


def _order(failures: Sequence[Failure]) -> Callable[[Failure], Key]:
    """Return the first sort key that all failures have."""
    if all(f.ended_at is not None for f in failures):
        return lambda f: (f.ended_at or 0.0, not f.root, f.line)
    if all(f.time is not None for f in failures):
        return lambda f: (f.time or 0.0, not f.root, f.line)
    if len({f.source for f in failures}) == 1:
        # Failures known only from how the process ended are reported at the end of a log.
        full = any(f.cause in causes.OUT_OF_MEMORY for f in failures)
        return lambda f: (f.weak, full and _is_of_a_handler(f), f.line)
    return lambda f: (f.weak, not f.certain, f.cause in FROM_OUTSIDE, not f.root, f.line)


def _is_of_a_handler(failure: Failure) -> bool:
    """Return True for a NameError, UnboundLocalError or the like of a writer without a rank.

    If memory ran out before a name was bound, the program's clean-up fails for lack of that name;
    with several ranks without tags, that error may be printed first.
    """
    return failure.rank is None and failure.text.startswith(("NameError", "UnboundLocalError"))


def _cause_of_victims(seen: Mapping[int | None, Sequence[FailureSign]]) -> str:
    """Return the conclusion if all writers are victims."""
    causes_seen = {sign.meaning.cause for signs in seen.values() for sign in signs}
    if causes.COLLECTIVE_TIMEOUT in causes_seen:
        return causes.COLLECTIVE_TIMEOUT
    only_meeting = causes.RENDEZVOUS in causes_seen and causes.NCCL_ERROR not in causes_seen
    return causes.RENDEZVOUS if only_meeting else causes.UNKNOWN
