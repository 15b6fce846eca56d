"""What a watch remembers of jobs and incidents, and the keeping of it over restarts.

With it a watch that is started anew says what one that ran on would have said: jobs are compared
with their own beginning, incidents that go on are not opened again, and sums do not begin at 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from rankscope_analyzers.stragglers.followed_jobs import FollowedJob, FollowedJobs
from rankscope_analyzers.stragglers.state import StateError, document, loaded
from rankscope_analyzers.watch.series import WatchSeries
from rankscope_analyzers.watch.store import Kept, Part, Store, StoreError

WATCH, POLLS, JOB = "watch", "polls", "job"
"""Parts of the document."""

SAVE_SECONDS = 300.0
"""Time between two savings where no incident changed. Records of the last half an hour are asked
for anyway, so that nothing is lost with them; the state of 16,384 ranks takes 2 s of CPU."""


class Holder(Protocol):
    """Whoever has the watch, and lets nobody else at it meanwhile."""

    def with_watch(self, use: Callable[[WatchSeries], None]) -> None:
        """Call `use` with the watch."""
        ...


class Memory:
    """Loads what is known before the first evaluation, and saves it after others.

    Args:
        store: where it is kept; None if it is not.
        say: takes a sentence about what cannot be loaded or saved.
    """

    def __init__(self, store: Store | None, say: Callable[[str], None]) -> None:
        self._store = store
        self._say = say
        self._loaded = False
        self._saved = -SAVE_SECONDS
        self._whole = False
        self._problem = ""

    def begin(self, holder: Holder, followed: FollowedJobs | None) -> None:
        """Note that an evaluation begins; before the first one load what is known."""
        self._whole = False
        if self._store is not None and not self._loaded:
            self._loaded = True
            self._load(self._store, holder, followed)

    def end(self, holder: Holder, followed: FollowedJobs | None, *, changed: bool) -> None:
        """Note that an evaluation has ended; save what is known if it is time.

        Args:
            holder: of the watch.
            followed: what is known of jobs, None where each look judges anew.
            changed: whether an incident opened, changed or ended: that is not to be told twice.
        """
        self._whole = True
        if changed or time.monotonic() - self._saved >= SAVE_SECONDS:
            self.save(holder, followed)

    def save(self, holder: Holder, followed: FollowedJobs | None) -> None:
        """Save what is known, unless an evaluation was broken off half way."""
        if self._store is None or not self._whole:
            return
        self._saved = time.monotonic()
        parts: list[Part] = []
        holder.with_watch(lambda watch: parts.append(Part(WATCH, "", watch.kept())))
        if followed is not None:
            parts.append(Part(POLLS, "", followed.polls))
            parts.extend(_of_jobs(followed))
        try:
            left = self._store.write(parts, time.time())
        except StoreError as error:
            self._tell(f"what is known of jobs cannot be kept: {error}")
        else:
            self._tell(f"what is known of {left} jobs is too much to be kept" if left else "")

    def forget(self) -> None:
        """Load anew before the next evaluation: until then another watch goes on."""
        self._loaded = False
        self._whole = False

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            self._say(problem)
        elif self._problem and not problem:
            self._say("what is known of jobs can be kept again")
        self._problem = problem

    def _load(self, store: Store, holder: Holder, followed: FollowedJobs | None) -> None:
        try:
            kept = store.read()
        except StoreError as error:
            self._say(f"what was kept of jobs cannot be used, and is begun anew: {error}")
            return
        if kept is None:
            return
        problems = list(kept.problems)
        for part in kept.parts:
            if part.kind == WATCH:
                problems += _restored(part, holder)
        if followed is not None:
            problems += _followed(kept, followed)
        for problem in problems:
            self._say(f"of what was kept of jobs: {problem}")


def _of_jobs(followed: FollowedJobs) -> Iterator[Part]:
    """Yield the jobs, those that were seen last first."""
    for name, known in reversed(list(followed.jobs())):
        yield Part(JOB, name, document(known))


def _restored(part: Part, holder: Holder) -> list[str]:
    problems: list[str] = []

    def restore(watch: WatchSeries) -> None:
        try:
            watch.restore(part.value)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            problems.append(f"incidents and sums make no sense: {error!r}")

    holder.with_watch(restore)
    return problems


def _followed(kept: Kept, followed: FollowedJobs) -> list[str]:
    """Take up jobs as they were; return what could not be."""
    polls = [part.value for part in kept.parts if part.kind == POLLS]
    known: dict[str, FollowedJob] = {}
    problems = []
    for part in reversed(kept.parts):
        if part.kind == JOB:
            try:
                known[part.name] = _following(part.value)
            except StateError as error:
                problems.append(f"job {part.name!a} begins anew: {error}")
    count = polls[0] if polls and isinstance(polls[0], int) else 0
    followed.restore(known, count)
    return problems


def _following(value: object) -> FollowedJob:
    found = loaded(value)
    if not isinstance(found, FollowedJob):
        raise StateError(f"a {type(found).__name__} is no job")
    return found
