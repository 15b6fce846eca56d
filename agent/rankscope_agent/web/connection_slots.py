"""Connection slots are limited; a connection without a request makes room for newcomers.

The accepting thread decides, and never waits: a peer that is silent, or sends its request byte by
byte, loses its connection as soon as its place is needed, and not when its time is up.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections import Counter
from dataclasses import dataclass, field

MAX_CONNECTIONS = 64
"""Connections served at once, each by a thread: some twenty scrapers, probes and people are the
most that a node's agent meets, and 64 threads cost less than 10 MB."""

MAX_PER_PEER = 32
"""Connections of one address: half of all, so that one pod that opens as many as it can leaves
places for the scraper."""

MAX_ANSWERS_PER_PEER = 16
"""Connections of one address that are answered at once. They keep their places for as long as they
may take their answers, so that who reads slowly would hold all of them from two addresses."""

MAX_ENDING = 64
"""Threads that may still be busy with the end of a connection that made room. Newcomers are turned
away beyond that, so that however fast they come the number of threads has a bound."""


@dataclass(slots=True, eq=False)
class Slot:
    """One connection, and what is known of it.

    Args:
        peer: the address that it comes from.
        connection: what makes it end when its place is given to another.
        waiting_since: how many waits began before its own; it waits for a handshake or a request.
        asked: it has sent a whole head before, so that somebody asks at its other end.
        answering: a request has come, and is being answered.
        evicted: its place is another's by now.
    """

    peer: str
    connection: socket.socket
    waiting_since: int
    asked: bool = False
    answering: bool = False
    evicted: bool = False


@dataclass(slots=True)
class _Table:
    """What is taken, under the lock of its owner."""

    taken: list[Slot] = field(default_factory=list)
    peers: Counter[str] = field(default_factory=Counter)
    ending: int = 0

    def add(self, slot: Slot) -> None:
        self.taken.append(slot)
        self.peers[slot.peer] += 1

    def remove(self, slot: Slot) -> None:
        self.taken.remove(slot)
        self.peers[slot.peer] -= 1
        if not self.peers[slot.peer]:
            del self.peers[slot.peer]


class Slots:
    """The places of one server.

    A newcomer takes a free place. When there is none, it takes that of a connection whose request
    has not come: of the address that holds most places, one that never asked anything before one
    that did, the longest wait first. A connection that is being answered keeps its place.
    """

    def __init__(self, most: int = MAX_CONNECTIONS, most_per_peer: int = MAX_PER_PEER) -> None:
        self._most = most
        self._most_per_peer = most_per_peer
        self._waits = itertools.count()
        self._lock = threading.Lock()
        self._table = _Table()

    def acquire(self, peer: str, connection: socket.socket) -> Slot | None:
        """Take a place for a connection; None if there is none, and none can be made."""
        with self._lock:
            over_answer_limit = self._table.peers[peer] >= self._most_per_peer
            full = over_answer_limit or len(self._table.taken) >= self._most
            if full and not self._make_room(peer if over_answer_limit else None):
                return None
            slot = Slot(peer, connection, next(self._waits))
            self._table.add(slot)
            return slot

    def release(self, slot: Slot) -> None:
        """Give a place back, before its connection is closed."""
        with self._lock:
            if slot.evicted:
                self._table.ending -= 1
            else:
                self._table.remove(slot)

    def secured(self, slot: Slot, connection: socket.socket) -> bool:
        """Note that a connection goes on in another socket; False if it has lost its place."""
        with self._lock:
            slot.connection = connection
            return not slot.evicted

    def answer(self, slot: Slot) -> bool:
        """Note that a whole head has come; False if the connection has lost its place."""
        with self._lock:
            slot.answering = slot.asked = True
            return not slot.evicted

    def over_answer_limit(self, slot: Slot) -> bool:
        """Return True if more connections of its address are being answered than one may have."""
        with self._lock:
            answered = [p for p in self._table.taken if p.answering and p.peer == slot.peer]
            return len(answered) > MAX_ANSWERS_PER_PEER

    def wait(self, slot: Slot) -> None:
        """Note that a connection waits for a request."""
        with self._lock:
            slot.answering = False
            slot.waiting_since = next(self._waits)

    def evict_one(self) -> bool:
        """End the connection that would make room next; False if there is but one, or none.

        For a server without a descriptor for a newcomer: two might otherwise end each other for
        ever.
        """
        with self._lock:
            return self._make_room(None, least=2)

    def _make_room(self, peer: str | None, least: int = 1) -> bool:
        """End a connection, of one address if one is named, if so many or more are silent."""
        silent = [
            slot for slot in self._table.taken if not slot.answering and peer in (None, slot.peer)
        ]
        if len(silent) < least or self._table.ending >= MAX_ENDING:
            return False
        self._evict(min(silent, key=self._eviction_order))
        return True

    def _eviction_order(self, slot: Slot) -> tuple[int, bool, int]:
        """Return what a waiting connection has to say for itself; the least makes room."""
        return -self._table.peers[slot.peer], slot.asked, slot.waiting_since

    def _evict(self, slot: Slot) -> None:
        self._table.remove(slot)
        self._table.ending += 1
        slot.evicted = True
        # That of the plain socket: an SSLSocket would go on in plain text. Its thread wakes up.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(slot.connection, socket.SHUT_RDWR)
