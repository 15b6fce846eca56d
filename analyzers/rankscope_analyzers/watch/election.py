"""Which of several watches evaluates, by a Lease that all read and one writes: only the rules.

Whoever holds the lease writes to it at each attempt. Others take it when it has not changed for
`LEASE_SECONDS` by their own clock, so that clocks of nodes need not agree. A write is based on what
was read, and the API server refuses it if somebody else wrote in between: of two that take the
lease one gets it.

A holder stops as soon as it reads that another holds the lease, and at nothing else: as long as the
API server answers nobody, nobody can take it. Where it answers others but not the holder, both
speak until the holder can read again; that is said and counted, never silent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

LEASE_SECONDS = 30.0
"""Time after which a lease that nobody renewed may be taken: one evaluation is missed at most."""

CONFLICTS = 3
"""Readings of one attempt: after the first one who else wrote is known, and it is rarely two."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lease as it is stored.

    Args:
        holder: who holds it, empty if nobody does.
        renewed: when, by the holder's clock: any change shows that the holder lives.
        stored: what a write is based on, as the store wants it back.
    """

    holder: str
    renewed: object
    stored: object = None


class LeaseError(Exception):
    """The lease cannot be read or written; the message says what was answered, if anything."""


class Store(Protocol):
    """Where the lease is. All raise LeaseError."""

    def read(self) -> Held | None:
        """Return the lease, None if there is none."""
        ...

    def create(self, holder: str) -> bool:
        """Write a lease where there is none; False if another was faster."""
        ...

    def replace(self, read: Held, holder: str) -> bool:
        """Write over what was read; False if it is not what is there any more."""
        ...


class Election:
    """One of those that would like to hold a lease.

    Args:
        store: where the lease is.
        identity: its name among the others.
        clock: seconds that only grow.
    """

    def __init__(self, store: Store, identity: str, clock: Callable[[], float]) -> None:
        self.holds = False
        self.holder = ""
        self._store = store
        self._identity = identity
        self._clock = clock
        self._known: tuple[str, object] | None = None
        self._since = 0.0

    def attempt(self) -> None:
        """Read the lease; renew it, take it, or leave it to its holder.

        Raises:
            LeaseError: it cannot be read or written. Whoever held it then goes on, unless it has
                read that another does.
        """
        for _ in range(CONFLICTS):
            read = self._store.read()
            if read is None:
                written = self._store.create(self._identity)
            elif self._may_write(read):
                written = self._store.replace(read, self._identity)
            else:
                return
            if written:
                self.holds, self.holder = True, self._identity
                return

    def release(self) -> None:
        """Give the lease back, so that nobody has to wait until it runs out.

        Raises:
            LeaseError: it cannot be read or written, and runs out by itself.
        """
        self.holds = False
        read = self._store.read()
        if read is not None and read.holder == self._identity:
            self._store.replace(read, "")

    def _may_write(self, read: Held) -> bool:
        """Note what was read, and say whether the lease is ours, nobody's or has run out."""
        known = (read.holder, read.renewed)
        if known != self._known:
            self._known, self._since = known, self._clock()
        self.holder = read.holder
        if read.holder == self._identity:
            return True
        self.holds = False
        return not read.holder or self._clock() - self._since >= LEASE_SECONDS
