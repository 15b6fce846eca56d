"""Leader election by a Lease that all watches read and one writes: only the rules.

The holder renews the lease at each attempt. Others acquire it when it has not changed for
`LEASE_SECONDS` by their own clock, so that the clocks of nodes need not agree. A write is based on
what was read, and the API server rejects it if another was faster: of two only one acquires it.

A holder stops as soon as it reads that another one holds the lease, and for no other reason: while
the API server answers none of them, none can acquire it. If it answers others but not the holder,
both export findings until the holder can read again; that is logged and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

LEASE_SECONDS = 30.0
"""Time after which a lease that was not renewed may be acquired: at most one evaluation is
missed."""

CONFLICTS = 3
"""Reads per attempt: after the first conflict the other writer is known, and there are rarely
two."""


@dataclass(frozen=True, slots=True)
class Term:
    """The time from which on a candidate holds a lease until another one acquires it.

    Args:
        holder: identity of the candidate.
        transitions: how often the lease changed hands, as the lease counts it.
        created: Unix time at which the lease was created; a new lease counts from the start.
    """

    holder: str
    transitions: int
    created: float

    def is_before(self, other: Term) -> bool:
        """Return True if another term of the same lease is newer."""
        return (self.created, self.transitions) < (other.created, other.transitions)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A lease as it is stored.

    Args:
        holder: identity of the holder, empty if there is none.
        renewed: when, by the holder's clock: any change shows that the holder is alive.
        stored: the stored object that a write is based on.
        transitions: how often it changed hands.
        created: Unix time at which it was made.
    """

    holder: str
    renewed: object
    stored: object
    transitions: int
    created: float

    @property
    def term(self) -> Term:
        """Return the term of its holder."""
        return Term(self.holder, self.transitions, self.created)


class LeaseError(Exception):
    """The lease cannot be read or written; the message contains the answer, if any."""


class Store(Protocol):
    """Where the lease is stored. All methods raise LeaseError."""

    def read(self) -> LeaseRecord | None:
        """Return the lease, None if there is none."""
        ...

    def create(self, holder: str) -> LeaseRecord | None:
        """Create the lease and return it; None if another was faster."""
        ...

    def replace(self, read: LeaseRecord, holder: str) -> LeaseRecord | None:
        """Replace what was read and return the lease; None if it has changed since."""
        ...


class Election:
    """A candidate for a lease.

    Args:
        store: where the lease is stored.
        identity: of this candidate.
        clock: monotonic seconds.
    """

    def __init__(self, store: Store, identity: str, clock: Callable[[], float]) -> None:
        self.term: Term | None = None
        self.holder = ""
        self._store = store
        self._identity = identity
        self._clock = clock
        self._known: tuple[str, object] | None = None
        self._since = 0.0

    @property
    def holds(self) -> bool:
        """Return True if it held the lease when it was last read or written."""
        return self.term is not None

    def attempt(self) -> None:
        """Read the lease; renew it, acquire it, or leave it to its holder.

        Raises:
            LeaseError: it cannot be read or written. A holder keeps leading unless it has read
                that another one holds the lease.
        """
        for _ in range(CONFLICTS):
            read = self._store.read()
            if read is None:
                written = self._store.create(self._identity)
            elif self._may_write(read):
                written = self._store.replace(read, self._identity)
            else:
                return
            if written is not None:
                self.term, self.holder = written.term, self._identity
                return

    def release(self) -> None:
        """Release the lease, so that others need not wait until it expires.

        Raises:
            LeaseError: it cannot be read or written, and will expire.
        """
        self.term = None
        read = self._store.read()
        if read is not None and read.holder == self._identity:
            self._store.replace(read, "")

    def _may_write(self, read: LeaseRecord) -> bool:
        """Record what was read; return True if the lease is ours, free or expired."""
        known = (read.holder, read.renewed)
        if known != self._known:
            self._known, self._since = known, self._clock()
        self.holder = read.holder
        if read.holder == self._identity:
            return True
        self.term = None
        return not read.holder or self._clock() - self._since >= LEASE_SECONDS
