"""Queries ranks' worker servers for launched collectives and the stacks of training threads.

The servers are not trusted: how many are queried at once, by however many clients, is limited, and
their answers are parsed one after another, because each may take as much memory as all else.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankscope_agent.contract import thread_stacks
from rankscope_agent.contract.flight_dump import Frame
from rankscope_agent.contract.stalls import MAX_GROUPS, GroupCalls, groups_of
from rankscope_agent.sources.flight_recorder.failures import FlightError
from rankscope_agent.sources.flight_recorder.launches import read_answer
from rankscope_agent.sources.flight_recorder.worker_server import (
    HANDLERS,
    PULL_SECONDS,
    QUERY,
    STACKS,
    Question,
    ask,
)
from rankscope_agent.sources.training.files import RING_SUFFIX
from rankscope_agent.sources.training.format import RingError
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.ring_rows import RingAnswer

MAX_AT_ONCE = 16
"""Ranks queried at once: enough for two looks, of two jobs."""

STACK_SECONDS = 1.0
"""A rank that holds its interpreter's lock returns no stack, however long one waits."""

LONGEST_SECONDS = PULL_SECONDS + STACK_SECONDS
"""How long a rank can keep a query waiting."""


@dataclass(frozen=True, slots=True)
class RankAnswer:
    """What a rank says of itself, as in `RankStall`, and how long that took."""

    groups: tuple[GroupCalls, ...] = ()
    recorder: str = ""
    stack: tuple[Frame, ...] = ()
    no_stack: str = ""
    seconds: float = 0.0


class RankQueries:
    """Queries ranks; may be used by any number of threads at once.

    Args:
        rings: the node's rings.
    """

    def __init__(self, rings: RingStepSource) -> None:
        self._rings = rings
        self._places = threading.BoundedSemaphore(MAX_AT_ONCE)
        self._parsing = threading.Lock()

    def ask(self, ring: RingAnswer, until: float) -> RankAnswer | None:
        """Return launches and stack of a rank, each with why it is missing.

        Args:
            ring: the rank's.
            until: monotonic time after which it is not queried any more, and None is returned.
        """
        left = until - time.monotonic()
        if left <= 0 or not self._places.acquire(timeout=left):
            return None
        try:
            began = time.monotonic()
            answer = self._asked(ring)
            return replace(answer, seconds=time.monotonic() - began)
        finally:
            self._places.release()

    def _asked(self, ring: RingAnswer) -> RankAnswer:
        try:
            with self._rings.reopened(ring) as (directory, opened):
                owner = None if ring.directory.pod_uid else os.fstat(opened.descriptor).st_uid
                name = opened.name.removesuffix(RING_SUFFIX) + ".sock"
                question = Question(directory, name, owner)
                groups, why = self._groups(question)
                stack, no_stack = _stack(question) if groups is not None else ((), why)
        except (OSError, RingError) as error:
            return RankAnswer(recorder=_shortened(error), no_stack=_shortened(error))
        return RankAnswer(tuple(groups or ())[:MAX_GROUPS], why, stack, no_stack)

    def _groups(self, question: Question) -> tuple[Sequence[GroupCalls] | None, str]:
        """Return what a process launched, by group; None if it does not answer.

        A job on NCCL often has groups of gloo too, with a recorder of their own, and may hang in
        them: those of the recorder with most entries come first.
        """
        found: list[tuple[int, Sequence[GroupCalls]]] = []
        try:
            for body in ask(question, [(one, QUERY) for one in HANDLERS], PULL_SECONDS):
                with self._parsing:
                    dump = read_answer(body)
                    found.append((len(dump.entries), groups_of(dump)))
        except FileNotFoundError:
            return None, "it has no worker server"
        except FlightError as error:
            return None, _shortened(error)
        if not found:
            return (), "it has no Flight Recorder"
        found.sort(key=lambda one: -one[0])
        return [group for _, groups in found for group in groups], ""


def _stack(question: Question) -> tuple[tuple[Frame, ...], str]:
    try:
        bodies = list(ask(question, [(STACKS, "")], STACK_SECONDS))
    except (OSError, FlightError) as error:
        return (), _shortened(error)
    if not bodies:
        return (), "its version of torch returns no stacks"
    frames = thread_stacks.training_thread(bodies[0].decode("utf-8", "replace"))
    return frames, "" if frames else "it runs no Python"


def _shortened(error: Exception) -> str:
    return str(error)[:100]
