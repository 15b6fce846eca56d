"""Leadership of several watches: which one evaluates, by a Kubernetes Lease."""

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
from rankscope_analyzers.watch.cluster_lease import REQUEST_SECONDS, ClusterLease
from rankscope_analyzers.watch.election import Election, LeaseError, Store, Term

RETRY_SECONDS = 5.0
"""Pause between two attempts. Two watches send 24 requests a minute to the API server."""

STUCK_SECONDS = 120.0
"""Seconds after which an attempt counts as stuck: each request to the API server ends in seconds,
and a name lookup in half a minute. A holder that is stuck must not lead."""

NOT_YET = "the lease has not been read yet"


class Leadership(Protocol):
    """Decides whether this watch leads, that is, evaluates."""

    def held(self) -> bool:
        """Return True if it leads at this moment."""
        ...

    def problem(self) -> str:
        """Return why that is uncertain, empty if it is certain."""
        ...

    def samples(self) -> Iterator[Sample]:
        """Yield series that are exported whether it leads or not."""
        ...

    def close(self) -> None:
        """Give up leadership."""
        ...


class SingleInstance:
    """Leadership of a single watch without a lease."""

    def held(self) -> bool:
        """Return True."""
        return True

    def problem(self) -> str:
        """Return an empty text."""
        return ""

    def samples(self) -> Iterator[Sample]:
        """Return nothing."""
        return iter(())

    def close(self) -> None:
        """Do nothing."""


class LeaseLeadership:
    """Leadership by a Lease that this process tries to acquire and keep, in a separate thread.

    Args:
        name: of the Lease.
        namespace: of the Lease.
        log: called with a sentence about each change.
        store: where the lease is stored, by default the cluster.

    Raises:
        rankscope_analyzers.intake.cluster.ClusterError: the API server is not accessible.
    """

    def __init__(
        self, name: str, namespace: str, log: Callable[[str], None], store: Store | None = None
    ) -> None:
        self._lease = f"{namespace}/{name}"
        self._log = log
        self._election = Election(
            store or ClusterLease(name, namespace),
            f"{socket.gethostname()}_{uuid.uuid4()}",
            time.monotonic,
        )
        self._problem = NOT_YET
        self._tried = time.monotonic()
        self._attempt_lock = threading.Lock()
        self._closing = threading.Event()
        threading.Thread(target=self._run, name="lease", daemon=True).start()

    def held(self) -> bool:
        """Return True if the lease was held when it was last read, and attempts are not stuck."""
        return self._election.holds and not self._stuck()

    def term(self) -> Term | None:
        """Return the term in which this watch holds the lease, None if it does not."""
        return None if self._stuck() else self._election.term

    def problem(self) -> str:
        """Return why the last attempt could not read or renew the lease, empty if it could."""
        if self._stuck():
            return f"the lease {self._lease} was not checked for {STUCK_SECONDS:.0f} s"
        return self._problem

    def samples(self) -> Iterator[Sample]:
        """Yield whether this watch holds the lease, and whether it can read it."""
        yield metrics.WATCH_LEADING.sample(int(self.held()), lease=self._lease)
        problem = self.problem()
        if problem != NOT_YET:
            yield metrics.WATCH_LEASE_UP.sample(int(not problem), lease=self._lease)

    def close(self) -> None:
        """Release the lease, so that others need not wait until it expires."""
        self._closing.set()
        # An attempt that is under way would acquire it again.
        if self._attempt_lock.acquire(timeout=2 * REQUEST_SECONDS):
            try:
                if self._election.holds:
                    with suppress(LeaseError):
                        self._election.release()
            finally:
                self._attempt_lock.release()

    def _stuck(self) -> bool:
        return time.monotonic() - self._tried > STUCK_SECONDS

    def _run(self) -> None:
        while True:
            with self._attempt_lock:
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
            self._log(f"{problem}; {'keeps evaluating' if self.held() else 'stands by'}")
        if before not in {"", NOT_YET} and not problem:
            self._log(f"the lease {self._lease} can be read again")
        if self._election.holds != held:
            self._log_change()

    def _log_change(self) -> None:
        if self._election.holds:
            self._log(f"holds lease {self._lease}")
        else:
            who = self._election.holder or "nobody"
            self._log(f"lost lease {self._lease}, which {who} holds")
