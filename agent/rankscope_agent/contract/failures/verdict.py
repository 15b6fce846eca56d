"""Says which rank of an attempt failed first and why, from signs: pure.

A rank is a victim if all it says is that another one went away, or if its launcher ended it. Who
is left is compared by the times that launchers print, else by the order in one log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.messages import Meaning, classify_exit
from rankscope_agent.contract.failures.signs import (
    FailureSign,
    FailureSigns,
    Kind,
    RankEnd,
    SignLocation,
)

FROM_OUTSIDE = frozenset({causes.PREEMPTED, causes.CANCELLED, causes.DEADLINE, causes.NODE_LOST})
"""Causes that hit all ranks alike: what comes after them is their consequence."""

KILLED_TEXT = "ended by signal {number}"
EXITED_TEXT = "ended with exit code {number}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A rank that failed by itself.

    Args:
        rank: None where the logs do not tell.
        certain: the cause is proven, not only likely.
        text: the last line of its traceback, or what else says it.
        frame: innermost frame of the traceback.
        exit_code: below 0 for a signal.
        root: torchrun takes it for the root cause.
        weak: nothing but its exit code indicates it.
        ended_at: when it ended by its launcher, in seconds that compare within the job only.
        local: its rank counts within its node, as nothing translates it.
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
    """A rank that another's failure took along, and how that showed."""

    rank: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of the job.

    Args:
        first: who failed first; None where that is not known.
        others: who failed by themselves as well.
        silent: ranks between 0 and the highest seen of which nothing is known.
    """

    number: int
    cause: str
    first: Failure | None
    others: tuple[Failure, ...]
    victims: tuple[Victim, ...]
    silent: tuple[int, ...]


def decide(signs: FailureSigns) -> tuple[Attempt, ...]:
    """Return a verdict on each attempt that failed, the newest last."""
    failed = {s.location.attempt for s in signs.signs if s.kind != "survived"}
    numbers = sorted(failed | {end.attempt for end in signs.ends})
    return tuple(_attempt(signs, number) for number in numbers)


TIERS: tuple[frozenset[Kind], ...] = (
    frozenset({"exception", "exit", "platform"}),
    frozenset({"exception", "exit", "platform", "complaint"}),
    frozenset({"exception", "exit", "platform", "complaint", "echo"}),
)
"""Signs that are believed together; weaker ones count only where stronger ones name no one."""

SURVIVED: frozenset[Kind] = frozenset({"exception", "platform", "complaint", "echo", "survived"})
"""Signs that are believed where something failed and nothing else says why."""


def _attempt(signs: FailureSigns, number: int) -> Attempt:
    """Judge by the strongest signs that say who failed."""
    best = _judged(signs, number, TIERS[0])
    for kinds in TIERS[1:]:
        if best.first is not None and not best.first.weak and best.cause != causes.UNKNOWN:
            return best
        with_more = _judged(signs, number, kinds)
        if "echo" in kinds and not _adds(with_more, best):
            break
        if with_more.first is not None or with_more.victims:
            best = with_more
    return _with_survived(signs, number, best)


def _with_survived(signs: FailureSigns, number: int, known: Attempt) -> Attempt:
    """Explain a failure of no known cause by what the program reported to have survived."""
    if known.first is None or known.cause != causes.UNKNOWN:
        return known
    with_more = _judged(signs, number, SURVIVED)
    return known if with_more.first is None else with_more


def _adds(echoed: Attempt, known: Attempt) -> bool:
    """Return True if a launcher's echo says more than is known: who was killed first."""
    if known.first is not None or echoed.first is None:
        return False  # of a rank that ended for no known reason the launcher says no more
    return not known.victims or echoed.cause in KILLS


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
    ranks = {rank for rank in signs.ranks | spoken if rank is not None}
    return Attempt(
        number=number,
        cause=first.cause if first else _cause_of_victims(seen),
        first=first,
        others=tuple(ordered[1:]),
        victims=tuple(v for v in victims if v.rank is None or v.rank not in _ranks(failures)),
        silent=tuple(sorted(set(range(max(ranks, default=-1) + 1)) - spoken)) if spoken else (),
    )


def _ranks(failures: Iterable[Failure]) -> set[int | None]:
    return {failure.rank for failure in failures}


def _by_rank(
    signs: Iterable[FailureSign], ends: Iterable[RankEnd]
) -> dict[int | None, list[FailureSign]]:
    """Sort signs by global rank; torchrun's table translates local ones."""
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
    """Tell those who failed from those whom they took along."""
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


def _weight(sign: FailureSign) -> tuple[bool, bool, int]:
    """Order the signs of one rank: exceptions, certain ones first, then as they came."""
    return sign.kind != "exception", not sign.meaning.certain, sign.location.line


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
    """Judge a rank of which only its end is known."""
    relevant = next((s for s in signs if s.exit_code is not None), None)
    code = end.exit_code if end and end.exit_code is not None else relevant and relevant.exit_code
    if not code:
        return
    text = _exit_text(code)
    meaning = classify_exit(code)
    if meaning.victim:
        victims.append(Victim(rank, text))
        return
    sign = relevant or _sign_of(end, meaning)
    if sign is not None:
        found = _failure(rank, replace(sign, meaning=meaning, text=text, exit_code=code), end)
        failures.append(replace(found, weak=True))


def _sign_of(end: RankEnd | None, meaning: Meaning) -> FailureSign | None:
    """Make a sign of torchrun's table alone."""
    if end is None:
        return None
    location = SignLocation(end.source, 0, end.attempt, end.rank, False, None)
    return FailureSign("exit", meaning, location, "", exit_code=end.exit_code)


def _exit_text(code: int) -> str:
    number = -code if code < 0 else code - 128 if 128 < code <= 160 else 0
    name = SIGNAL_NAMES.get(number)
    if name is not None:
        return f"{KILLED_TEXT.format(number=number)} ({name})"
    return KILLED_TEXT.format(number=number) if number else EXITED_TEXT.format(number=code)


def _explained(failures: list[Failure]) -> list[Failure]:
    """Leave out what only says that something failed, where others say what."""
    known = [failure for failure in failures if failure.cause != causes.UNKNOWN]
    return known or failures


def _without_aftermath(failures: list[Failure], ends: Sequence[RankEnd]) -> list[Failure]:
    """Leave out crashes on the way out: of ranks that had reported before why they end."""
    crashed = sum(classify_exit(end.exit_code or 0).cause == causes.NATIVE_CRASH for end in ends)
    kept = []
    for failure in failures:
        if failure.rank is None and failure.cause == causes.NATIVE_CRASH and crashed > 0:
            crashed -= 1
        else:
            kept.append(failure)
    return kept


def _join_nameless(failures: list[Failure]) -> list[Failure]:
    """Give messages without a rank to ranks of which only a fitting end is known."""
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
    # A shell's `Killed` says again what the launcher has said.
    known = {f.cause for f in joined}
    for failure in nameless:
        is_known = failure.cause in known or (failure.cause == causes.KILLED and known & KILLS)
        again = is_known and (not failure.certain or failure.cause in FROM_OUTSIDE)
        if not again:
            joined.append(failure)
        known.add(failure.cause)
    return joined


def _join_nameless_victims(
    failures: list[Failure], victims: list[Victim]
) -> tuple[list[Failure], list[Victim]]:
    """Give victims' messages without a rank to ranks of which no more than their end is known.

    Those that their launcher ended come first: only messages beyond their number can be of a rank
    that ended by itself.
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
    """Return True if a message without a rank may be of a rank that ended in a certain way."""
    if nameless.cause in FROM_OUTSIDE:
        return False
    by_signal = ended.cause != causes.EXIT_CODE
    alike = nameless.cause == ended.cause or {nameless.cause, ended.cause} == KILLS
    return alike if by_signal else nameless.cause not in SIGNALLED


SIGNALLED = frozenset({causes.NATIVE_CRASH})
"""Causes that end a process by a signal."""

KILLS = frozenset({causes.HOST_OOM, causes.KILLED})
"""What a process that ends by SIGKILL may have ended for, with who killed it and without."""

FULL = frozenset({causes.GPU_OOM, *KILLS})
"""Causes that stop a program in the middle of whatever it does."""

SIGNAL_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}


Key = tuple[float, ...]


def _order(failures: Sequence[Failure]) -> Callable[[Failure], Key]:
    """Choose by what failures can be compared: the first that all of them have."""
    if all(f.ended_at is not None for f in failures):
        return lambda f: (f.ended_at or 0.0, not f.root, f.line)
    if all(f.time is not None for f in failures):
        return lambda f: (f.time or 0.0, not f.root, f.line)
    if len({f.source for f in failures}) == 1:
        # What is only known from how it ended is told at the end of a log.
        full = any(f.cause in FULL for f in failures)
        return lambda f: (f.weak, full and _is_of_a_handler(f), f.line)
    return lambda f: (f.weak, not f.certain, f.cause in FROM_OUTSIDE, not f.root, f.line)


def _is_of_a_handler(failure: Failure) -> bool:
    """Return True for a name that is not bound, of a writer without a rank.

    Where memory was full before a name was bound, what the program does on its way out fails for
    the lack of that name; of several ranks without tags, that may be printed first.
    """
    return failure.rank is None and failure.text.startswith(("NameError", "UnboundLocalError"))


def _cause_of_victims(seen: Mapping[int | None, Sequence[FailureSign]]) -> str:
    """Return the conclusion where all writers are victims."""
    causes_seen = {sign.meaning.cause for signs in seen.values() for sign in signs}
    if causes.COLLECTIVE_TIMEOUT in causes_seen:
        return causes.COLLECTIVE_TIMEOUT
    only_meeting = causes.RENDEZVOUS in causes_seen and causes.NCCL_ERROR not in causes_seen
    return causes.RENDEZVOUS if only_meeting else causes.UNKNOWN
