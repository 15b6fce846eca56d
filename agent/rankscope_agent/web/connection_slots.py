"""Limits the number of connections; one without a request makes room for newcomers.

The accepting thread decides and never waits: a peer that is silent, or sends its request byte by
byte, loses its connection as soon as its slot is needed, not when its time is up.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections import Counter
from dataclasses import dataclass, field

MAX_CONNECTIONS = 64
"""Connections served at once, each by a thread: a node's agent has at most some twenty scrapers,
probes and people, and 64 threads take less than 10 MB."""

MAX_PER_PEER = 32
"""Connections per address: half of all, so that one pod that opens as many as it can leaves slots
for the scraper."""

MAX_ANSWERS_PER_PEER = 16
"""Connections per address that are answered at once. They keep their slots for as long as receiving
an answer may take, so slow readers could hold all slots from two addresses."""

MAX_ENDING = 64
"""Threads that may still be ending a connection that made room. Beyond that, newcomers are
rejected, so that the number of threads is bounded however fast they arrive."""


@dataclass(slots=True, eq=False)
class Slot:
    """One connection and its state.

    Args:
        peer: the address that it comes from.
        connection: ends it when its slot is given to another.
        waiting_since: number of waits that began before its own, while it waits for a handshake or
            a request.
        asked: whether it has sent a complete request before, so that there is a genuine client.
        answering: whether a request has arrived and is being answered.
        evicted: whether its slot has been given to another.
    """

    peer: str
    connection: socket.socket
    waiting_since: int
    asked: bool = False
    answering: bool = False
    evicted: bool = False


@dataclass(slots=True)
class _Table:
    """The occupied slots, under the lock of the owner."""

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
    """The slots of one server.

    A newcomer takes a free slot. If there is none, it takes that of a connection without a request:
    of the address with most slots, one that never sent any request before one that did, the longest
    wait first. A connection that is being answered keeps its slot.
    """

    def __init__(self, most: int = MAX_CONNECTIONS, most_per_peer: int = MAX_PER_PEER) -> None:
        self._most = most
        self._most_per_peer = most_per_peer
        self._waits = itertools.count()
        self._lock = threading.Lock()
        self._table = _Table()

    def acquire(self, peer: str, connection: socket.socket) -> Slot | None:
        """Take a slot for a connection; return None if there is none, and none can be freed."""
        with self._lock:
            over_answer_limit = self._table.peers[peer] >= self._most_per_peer
            full = over_answer_limit or len(self._table.taken) >= self._most
            if full and not self._make_room(peer if over_answer_limit else None):
                return None
            slot = Slot(peer, connection, next(self._waits))
            self._table.add(slot)
            return slot

    def release(self, slot: Slot) -> None:
        """Release a slot, before its connection is closed."""
        with self._lock:
            if slot.evicted:
                self._table.ending -= 1
            else:
                self._table.remove(slot)

    def secured(self, slot: Slot, connection: socket.socket) -> bool:
        """Record that a connection moves to another socket; return False if it lost its slot."""
        with self._lock:
            slot.connection = connection
            return not slot.evicted

    def answer(self, slot: Slot) -> bool:
        """Record that a request has arrived; return False if the connection has lost its slot."""
        with self._lock:
            slot.answering = slot.asked = True
            return not slot.evicted

    def over_answer_limit(self, slot: Slot) -> bool:
        """Return True if too many connections of its address are being answered."""
        with self._lock:
            answered = [p for p in self._table.taken if p.answering and p.peer == slot.peer]
            return len(answered) > MAX_ANSWERS_PER_PEER

    def wait(self, slot: Slot) -> None:
        """Record that a connection waits for a request."""
        with self._lock:
            slot.answering = False
            slot.waiting_since = next(self._waits)

    def evict_one(self) -> bool:
        """End the connection that would make room next; return False if there is at most one.

        For a server without a descriptor for a newcomer: two might otherwise end each other
        forever.
        """
        with self._lock:
            return self._make_room(None, least=2)

    def _make_room(self, peer: str | None, least: int = 1) -> bool:
        """End a waiting connection, of one address if given, if at least so many are waiting."""
        silent = [
            slot for slot in self._table.taken if not slot.answering and peer in (None, slot.peer)
        ]
        if len(silent) < least or self._table.ending >= MAX_ENDING:
            return False
        self._evict(min(silent, key=self._eviction_order))
        return True

    def _eviction_order(self, slot: Slot) -> tuple[int, bool, int]:
        """Return the priority of a waiting connection; the lowest makes room."""
        return -self._table.peers[slot.peer], slot.asked, slot.waiting_since

    def _evict(self, slot: Slot) -> None:
        self._table.remove(slot)
        self._table.ending += 1
        slot.evicted = True
        # Shut down the plain socket: an SSLSocket would continue in plain text. Its thread wakes
        # up.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(slot.connection, socket.SHUT_RDWR)
