"""What a watch remembers of jobs and incidents, and the keeping of it over restarts.

With it a watch that is started anew says what one that ran on would have said: jobs are compared
with their own beginning, incidents that go on are not opened again, and sums do not begin at 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

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
"""Time between two savings where no incident changed. Records of the last half an hour are asked
for anyway, so that nothing is lost with them; the state of 16,384 ranks takes 2 s of CPU."""


AWAITED_SECONDS = 60.0
"""So long changes are not told while what was kept cannot be read: an incident could be told twice.
After that one that nobody hears of is worse."""


class Holder(Protocol):
    """Holds the watch, and lets no one else at it meanwhile."""

    def with_watch(self, use: Callable[[WatchSeries], None]) -> None:
        """Call `use` with the watch."""
        ...


class NoWatch:
    """Holds no watch: for a memory of keepers alone."""

    def with_watch(self, use: Callable[[WatchSeries], None]) -> None:
        """Call nothing."""


class Keeper(Protocol):
    """Has something of its own that must outlive the watch."""

    def kept(self) -> Any:
        """Return it, as JSON can hold it."""
        ...

    def restore(self, kept: Any) -> None:
        """Go on from what was kept, from nothing if that is None.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: it is no such thing.
        """
        ...


class Memory:
    """Loads what is known before the first evaluation, and saves it after others.

    Args:
        store: where it is kept; None if it is not.
        say: takes a sentence about what cannot be loaded or saved.
        keepers: who has more to keep, by the kind of part that it is kept as.
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
        """Note that an evaluation begins; before the first one load what is known."""
        self._whole = False
        if self._store is not None and not self._loaded:
            self._loaded = self._load(self._store, holder, followed)

    @property
    def loaded(self) -> bool:
        """Whether all that was kept is known: before that no sum may be continued."""
        return not self._unread

    @property
    def awaited(self) -> bool:
        """Whether what was kept cannot be read yet, and may be in a moment."""
        since = self._unread_since
        return since is not None and time.monotonic() - since < AWAITED_SECONDS

    def end(self, holder: Holder, followed: FollowedJobs | None, *, changed: bool) -> bool:
        """Note that an evaluation has ended; save what is known if it is time.

        Returns:
            Whether all that is known now is kept, or nothing is to be kept at all.

        Args:
            holder: of the watch.
            followed: what is known of jobs, None where each look judges anew.
            changed: whether an incident opened, changed or ended: that is not to be told twice.
        """
        self._whole = True
        if changed or time.monotonic() - self._saved >= SAVE_SECONDS:
            return self.save(holder, followed)
        return self._store is None

    def save(self, holder: Holder, followed: FollowedJobs | None) -> bool:
        """Save what is known, unless an evaluation was broken off half way.

        Returns:
            Whether it was saved, or nothing is to be saved at all.
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
        own = [Part(kind, "", keeper.kept()) for kind, keeper in self._keepers.items()]
        parts = [*first, *own, *others]
        if followed is not None:
            parts.append(Part(POLLS, "", followed.polls))
            parts.extend(_of_jobs(followed))
        try:
            left = self._store.write(parts, time.time())
        except StoreError as error:
            self._tell(f"what is known of jobs cannot be kept: {error}")
            if isinstance(error, ChangedError):
                self.forget()
            return False
        self._tell(f"what is known of {left} jobs is too much to be kept" if left else "")
        return True

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

    def _load(self, store: Store, holder: Holder, followed: FollowedJobs | None) -> bool:
        """Load what was kept; return False if that has to be tried again."""
        try:
            kept = store.read()
        except UnreachableError as error:
            self._tell(f"what was kept of jobs cannot be read, and no sum goes on: {error}")
            self._unread = True
            if self._unread_since is None:
                self._unread_since = time.monotonic()
            return False
        except StoreError as error:
            self._say(f"what was kept of jobs cannot be used, and is begun anew: {error}")
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
            self._say(f"of what was kept of jobs: {problem}")
        return True

    def _restore_keepers(self, parts: Iterable[Part]) -> Iterator[str]:
        values = {part.kind: part.value for part in parts}
        for kind, keeper in self._keepers.items():
            problem = _taken_up(keeper, values.get(kind))
            if problem:
                yield f"{kind} makes no sense, and is begun anew: {problem}"


def _taken_up(keeper: Keeper, value: Any) -> str:
    try:
        keeper.restore(value)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        return repr(error)
    return ""


def _of_jobs(followed: FollowedJobs) -> Iterator[Part]:
    """Yield the jobs, those that were seen last first."""
    for name, known in reversed(list(followed.jobs())):
        yield Part(JOB, name, document(known))


def _restored(kept: Kept, holder: Holder) -> Sequence[str]:
    own = [part for part in kept.parts if part.kind in series_state.KINDS]
    if not own:
        return ()
    known, problems = series_state.restored(own)
    holder.with_watch(lambda watch: watch.restore(known))
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
