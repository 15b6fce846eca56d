"""Leader election of watches, as seen by the others and by Prometheus."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

from rankscope_agent.contract.metrics import watch as metrics
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.watch.election import Election, LeaseError, Store
from rankscope_analyzers.watch.leases import REQUEST_SECONDS, ClusterLease

RETRY_SECONDS = 5.0
"""Pause between two attempts. Two watches ask the API server 24 times a minute."""

STUCK_SECONDS = 120.0
"""Time after which an attempt that has not ended never will: each question to the API server ends
in seconds, and looking up its name in half a minute. A holder that looks no more must not hold."""

NOT_YET = "the lease has not been read yet"


class Leadership(Protocol):
    """Says whether this watch is the one that evaluates."""

    def held(self) -> bool:
        """Whether it is, at this moment."""
        ...

    def problem(self) -> str:
        """Why that is not known for sure, empty if it is."""
        ...

    def samples(self) -> Iterator[Sample]:
        """Yield series that are shown whether it is or not."""
        ...

    def close(self) -> None:
        """Leave it to others."""
        ...


class Alone:
    """There is no other watch."""

    def held(self) -> bool:
        """Always true."""
        return True

    def problem(self) -> str:
        """There is none."""
        return ""

    def samples(self) -> Iterator[Sample]:
        """There is no lease to tell of."""
        return iter(())

    def close(self) -> None:
        """Nobody waits."""


class Lease:
    """A Lease that this process tries to get and to keep, on a thread of its own.

    Args:
        name: of the Lease.
        namespace: where it is.
        say: takes a sentence about each change.
        store: where it is read and written, by default the cluster.

    Raises:
        rankscope_analyzers.intake.cluster.ClusterError: there is no way to the API server.
    """

    def __init__(
        self, name: str, namespace: str, say: Callable[[str], None], store: Store | None = None
    ) -> None:
        self._lease = f"{namespace}/{name}"
        self._say = say
        self._election = Election(
            store or ClusterLease(name, namespace),
            f"{socket.gethostname()}_{uuid.uuid4()}",
            time.monotonic,
        )
        self._problem = NOT_YET
        self._tried = time.monotonic()
        self._turn = threading.Lock()
        self._closing = threading.Event()
        threading.Thread(target=self._run, name="lease", daemon=True).start()

    def held(self) -> bool:
        """Whether the lease was had when it was last read, and is still being looked at."""
        return self._election.holds and not self._stuck()

    def problem(self) -> str:
        """Why the lease could not be read or renewed at the last attempt, empty if it could."""
        if self._stuck():
            return f"nothing was heard of the lease {self._lease} for {STUCK_SECONDS:.0f} s"
        return self._problem

    def samples(self) -> Iterator[Sample]:
        """Yield whether this watch holds the lease, and whether it can read it."""
        yield metrics.WATCH_LEADING.sample(int(self.held()), lease=self._lease)
        problem = self.problem()
        if problem != NOT_YET:
            yield metrics.WATCH_LEASE_UP.sample(int(not problem), lease=self._lease)

    def close(self) -> None:
        """Give the lease back, so that nobody has to wait until it runs out."""
        self._closing.set()
        # An attempt that is under way would take it again.
        if self._turn.acquire(timeout=2 * REQUEST_SECONDS):
            try:
                if self._election.holds:
                    with suppress(LeaseError):
                        self._election.release()
            finally:
                self._turn.release()

    def _stuck(self) -> bool:
        return time.monotonic() - self._tried > STUCK_SECONDS

    def _run(self) -> None:
        while True:
            with self._turn:
                if self._closing.is_set():
                    return
                self._attempt()
            self._closing.wait(RETRY_SECONDS)

    def _attempt(self) -> None:
        held = self._election.holds
        problem = ""
        try:
            self._election.attempt()
        except LeaseError as error:
            problem = str(error)
        self._tried = time.monotonic()
        before, self._problem = self._problem, problem
        if problem and problem != before:
            self._say(f"{problem}; {'evaluates all the same' if self.held() else 'stands by'}")
        if before not in {"", NOT_YET} and not problem:
            self._say(f"the lease {self._lease} can be read again")
        if self._election.holds != held:
            self._tell_of_change()

    def _tell_of_change(self) -> None:
        if self._election.holds:
            self._say(f"holds lease {self._lease}")
        else:
            who = self._election.holder or "nobody"
            self._say(f"lost lease {self._lease}, which {who} holds")
