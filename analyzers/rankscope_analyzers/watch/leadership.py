"""Which of several watches evaluates: the one that holds a Lease of the cluster."""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from rankscope_analyzers.intake.cluster import ClusterError, configure

LEASE_SECONDS = 30
"""Time after which a lease that nobody renewed may be taken: one evaluation is missed at most."""

RENEW_SECONDS = 20
"""Time without a renewal after which a holder stops: well before others take the lease, however
long its own question to the API server hangs."""

RETRY_SECONDS = 5
"""Pause between two tries. Two watches ask the API server 24 times a minute."""


class Leadership(Protocol):
    """Says whether this watch is the one that evaluates."""

    def held(self) -> bool:
        """Whether it is, at this moment."""
        ...

    def close(self) -> None:
        """Leave it to others."""
        ...


class Alone:
    """There is no other watch."""

    def held(self) -> bool:
        """Always true."""
        return True

    def close(self) -> None:
        """Nobody waits."""


class Lease:
    """A Lease that this process tries to get and to keep, on a thread of its own.

    The election is that of Kubernetes' client. Its answer counts for `RENEW_SECONDS` only, so that
    a question that hangs, or a thread that died, leaves no two watches speaking.

    Args:
        name: of the Lease.
        namespace: where it is.
        say: takes a sentence about each change.

    Raises:
        ClusterError: there is no way to the API server.
    """

    def __init__(self, name: str, namespace: str, say: Callable[[str], None]) -> None:
        self._place = name, namespace
        self._identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._say = say
        self._renewed: float | None = None
        self._closing = False
        _load_client()
        logging.getLogger("leaderelection").setLevel(logging.WARNING)  # or it tells of each renewal
        threading.Thread(target=self._run, name="lease", daemon=True).start()

    def held(self) -> bool:
        """Whether the lease was renewed just now."""
        renewed = self._renewed
        return renewed is not None and time.monotonic() - renewed < RENEW_SECONDS

    def close(self) -> None:
        """Give the lease back, so that nobody has to wait until it runs out."""
        held, self._closing, self._renewed = self.held(), True, None
        if not held:
            return
        lock = self._lock(lambda: False)
        with suppress(*_failures()):
            there, record = lock.get(*self._place)
            if there and record.holder_identity == self._identity:
                record.holder_identity = None
                lock.update(*self._place, record)

    def _lock(self, closing: Callable[[], bool]) -> Any:
        from kubernetes.leaderelection.resourcelock import leaselock

        make: Any = leaselock.LeaseLock
        lock = make(*self._place, self._identity)
        lock.api_instance = _Timed(lock.api_instance, closing)
        return lock

    def _run(self) -> None:
        from kubernetes.leaderelection import electionconfig, leaderelection

        untyped: Any = (electionconfig.Config, leaderelection.LeaderElection)
        settings, election = untyped
        lock = self._lock(lambda: self._closing)
        lock.create, lock.update = self._noted(lock.create), self._noted(lock.update)
        name, namespace = self._place
        elected = election(
            settings(
                lock,
                lease_duration=LEASE_SECONDS,
                renew_deadline=RENEW_SECONDS,
                retry_period=RETRY_SECONDS,
                onstarted_leading=lambda: self._say(f"holds lease {namespace}/{name}"),
                onstopped_leading=lambda: self._say(f"lost lease {namespace}/{name}"),
            )
        )
        while not self._closing:
            try:
                elected.run()
            except _ClosedError:
                return
            except _failures() as error:
                self._say(f"the lease cannot be asked for: {error}")
            time.sleep(RETRY_SECONDS)

    def _noted(self, attempt: Callable[..., bool]) -> Callable[..., bool]:
        """Return an attempt to get or renew the lease that notes when it succeeded."""

        def noted(*arguments: Any, **named: Any) -> bool:
            began = time.monotonic()
            succeeded = attempt(*arguments, **named)
            if succeeded:  # since before it was asked for: others count from when it was written
                self._renewed = None if self._closing else began
            return succeeded

        return noted


def _load_client() -> None:
    """Read the settings of Kubernetes' client.

    Raises:
        ClusterError: it is not installed, or finds none.
    """
    try:
        from kubernetes import config
        from kubernetes.config.config_exception import ConfigException
        from kubernetes.leaderelection.resourcelock import leaselock  # noqa: F401 - is it there?
    except ImportError:
        raise ClusterError(
            "a lease takes the kubernetes package from 37 on: pip install 'rankscope[cluster]'"
        ) from None
    try:
        configure(config)
    except ConfigException as error:
        raise ClusterError(f"no cluster to ask for a lease: {error}") from None


def _failures() -> tuple[type[Exception], ...]:
    """Return what comes of an API server that cannot be reached, or answers nonsense."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    return OSError, ValueError, HTTPError, ApiException


class _ClosedError(Exception):
    """Nothing more is asked for."""


class _Timed:
    """The client's API of leases, with an end to each question, and to all when that is time."""

    def __init__(self, api: Any, closing: Callable[[], bool]) -> None:
        self._api = api
        self._closing = closing

    def __getattr__(self, name: str) -> Any:
        if self._closing():
            raise _ClosedError
        return partial(getattr(self._api, name), _request_timeout=RETRY_SECONDS)
