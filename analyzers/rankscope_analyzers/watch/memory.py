"""What a watch remembers of jobs and incidents, and how it is saved across restarts.

With it a restarted watch reports what an uninterrupted one would have: jobs are compared with their
own beginning, open incidents are not opened again, and sums do not begin at 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.stragglers.followed_jobs import FollowedJob, FollowedJobs
from rankscope_analyzers.stragglers.state import StateError, document, loaded
from rankscope_analyzers.watch import series_state
from rankscope_analyzers.watch.series import WatchSeries
from rankscope_analyzers.watch.store import (
    ChangedError,
    Kept,
    Part,
    Store,
    StoreError,
    UnreachableError,
)

POLLS, JOB = "polls", "job"
"""Parts of the document."""

SAVE_SECONDS = 300.0
"""Seconds between two saves while no incident changes. Records of the last half hour are requested
anyway, so that nothing is lost with them; the state of 16,384 ranks takes 2 s of CPU."""


AWAITED_SECONDS = 60.0
"""How long changes are withheld while the saved state cannot be read, since an incident could be
announced twice. After that, an incident that nobody hears of would be worse."""


class Holder(Protocol):
    """Holds the watch, and gives exclusive access to it."""

    def with_watch(self, use: Callable[[WatchSeries], None]) -> None:
        """Call `use` with the watch."""
        ...


class NoWatch:
    """Holds no watch: for a memory with keepers only."""

    def with_watch(self, use: Callable[[WatchSeries], None]) -> None:
        """Call nothing."""


class Keeper(Protocol):
    """Has additional state that must outlive the watch."""

    def kept(self) -> Any:
        """Return the state to save, in JSON-ready form."""
        ...

    def restore(self, kept: Any) -> None:
        """Continue from saved state, from nothing if it is None.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: it is invalid.
        """
        ...


class Memory:
    """Loads what is known before the first evaluation, and saves it after others.

    Args:
        store: where it is saved; None if it is not.
        say: called with a sentence about what cannot be loaded or saved.
        keepers: sources of additional state, by the kind of part that it is saved as.
    """

    def __init__(
        self,
        store: Store | None,
        say: Callable[[str], None],
        keepers: Mapping[str, Keeper] | None = None,
    ) -> None:
        self._store = store
        self._say = say
        self._keepers = dict(keepers or {})
        self._loaded = False
        self._unread = False
        self._unread_since: float | None = None
        self._saved = -SAVE_SECONDS
        self._whole = False
        self._problem = ""

    def begin(self, holder: Holder, followed: FollowedJobs | None) -> None:
        """Begin an evaluation; before the first one load what is known."""
        self._whole = False
        if self._store is not None and not self._loaded:
            self._loaded = self._load(self._store, holder, followed)

    @property
    def loaded(self) -> bool:
        """Return True if all saved state is loaded: before that no sum may be continued."""
        return not self._unread

    @property
    def awaited(self) -> bool:
        """Return True if saved state cannot be read yet, but may be readable in a moment."""
        since = self._unread_since
        return since is not None and time.monotonic() - since < AWAITED_SECONDS

    def end(self, holder: Holder, followed: FollowedJobs | None, *, changed: bool) -> bool:
        """End an evaluation; save what is known if it is due, and have saved sums exported.

        Args:
            holder: of the watch.
            followed: the state of jobs, None if each look judges anew.
            changed: True if an incident opened, changed or ended, which must not be announced
                twice.

        Returns:
            True if all that is known now is saved, or nothing is to be saved at all.
        """
        self._whole = True
        due = changed or time.monotonic() - self._saved >= SAVE_SECONDS
        kept = self.save(holder, followed) if due else self._store is None
        if kept:
            holder.with_watch(WatchSeries.announce_sums)
        return kept

    def save(self, holder: Holder, followed: FollowedJobs | None) -> bool:
        """Save what is known, unless an evaluation was interrupted.

        Returns:
            True if it was saved, or nothing is to be saved at all.
        """
        if self._store is None:
            return True
        if self._unread or not self._whole:
            return False
        self._saved = time.monotonic()
        first: list[Part] = []
        others: list[Part] = []

        def take(watch: WatchSeries) -> None:
            first.extend(watch.state.first_parts())
            others.extend(watch.state.other_parts())

        holder.with_watch(take)
        own = [_part(kind, "", keeper.kept) for kind, keeper in self._keepers.items()]
        wanted = [*own, *first, *others]  # any number of jobs may have incidents
        if followed is not None:
            wanted.append(Part(POLLS, "", followed.polls))
            wanted.extend(_of_jobs(followed))
        parts = [part for part in wanted if part is not None]
        try:
            left = len(wanted) - len(parts) + self._store.write(parts, time.time())
        except StoreError as error:
            self._tell(f"the state of jobs cannot be saved: {error}")
            if isinstance(error, ChangedError):
                self.forget()
            return False
        why = "too large to be saved, or hold values that cannot be"
        self._tell(f"{left} parts of the state of jobs are {why}" if left else "")
        return True

    def forget(self) -> None:
        """Load again before the next evaluation, and save after it: another watch continues."""
        self._loaded = False
        self._whole = False
        self._saved = -SAVE_SECONDS

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            self._say(problem)
        elif self._problem and not problem:
            self._say("the state of jobs can be saved again")
        self._problem = problem

    def _load(self, store: Store, holder: Holder, followed: FollowedJobs | None) -> bool:
        """Load the saved state; return False if that has to be retried."""
        try:
            kept = store.read()
        except UnreachableError as error:
            self._tell(f"the saved state of jobs cannot be read, and sums do not continue: {error}")
            self._unread = True
            if self._unread_since is None:
                self._unread_since = time.monotonic()
            return False
        except StoreError as error:
            self._say(f"the saved state of jobs cannot be used and starts again: {error}")
            kept = None
        self._unread, self._unread_since = False, None
        self._tell("")
        problems = list(self._restore_keepers(kept.parts if kept else ()))
        if kept is None:
            return True
        problems += kept.problems
        problems += _restored(kept, holder)
        if followed is not None:
            problems += _followed(kept, followed)
        for problem in problems:
            self._say(f"of the saved state of jobs: {problem}")
        return True

    def _restore_keepers(self, parts: Iterable[Part]) -> Iterator[str]:
        values = {part.kind: part.value for part in parts}
        for kind, keeper in self._keepers.items():
            problem = _restore_problem(keeper, values.get(kind))
            if problem:
                yield f"{kind} is invalid and starts again: {problem}"


def _restore_problem(keeper: Keeper, value: Any) -> str:
    try:
        keeper.restore(value)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        return repr(error)
    return ""


def _of_jobs(followed: FollowedJobs) -> Iterator[Part | None]:
    """Yield the jobs, those that were seen last first."""
    for name, known in reversed(list(followed.jobs())):
        yield _part(JOB, name, partial(document, known))


def _part(kind: str, name: str, value: Callable[[], Any]) -> Part | None:
    """Return a part to save, None if it has no value that can be: it costs no other part."""
    found = attempt("look", name, value)
    return None if isinstance(found, AnalysisError) else Part(kind, name, found)


def _restored(kept: Kept, holder: Holder) -> Sequence[str]:
    own = [part for part in kept.parts if part.kind in series_state.KINDS]
    if not own:
        return ()
    known, problems = series_state.restored(own)
    holder.with_watch(lambda watch: watch.restore(known))
    return problems


def _followed(kept: Kept, followed: FollowedJobs) -> list[str]:
    """Restore jobs; return the problems of those that could not be."""
    polls = [part.value for part in kept.parts if part.kind == POLLS]
    known: dict[str, FollowedJob] = {}
    problems = []
    for part in reversed(kept.parts):
        if part.kind == JOB:
            try:
                known[part.name] = _following(part.value)
            except StateError as error:
                problems.append(f"job {part.name!a} starts again: {error}")
    count = polls[0] if polls and isinstance(polls[0], int) else 0
    followed.restore(known, count)
    return problems


def _following(value: object) -> FollowedJob:
    found = loaded(value)
    if not isinstance(found, FollowedJob):
        raise StateError(f"a {type(found).__name__} is no job")
    if not isinstance(found.last_poll, int):
        raise StateError(f"{found.last_poll!a} is no number of a poll")
    return found
