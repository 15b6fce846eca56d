"""Which of several watches evaluates: the one that holds a Lease of the cluster."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from rankscope_analyzers.cluster import ClusterError

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


class Alone:
    """There is no other watch."""

    def held(self) -> bool:
        """Always true."""
        return True


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
        self._renewed: float | None = None
        self._say = say
        election = self._election(name, namespace, f"{socket.gethostname()}_{uuid.uuid4()}")
        threading.Thread(target=self._run, args=(election,), name="lease", daemon=True).start()

    def held(self) -> bool:
        """Whether the lease was renewed just now."""
        renewed = self._renewed
        return renewed is not None and time.monotonic() - renewed < RENEW_SECONDS

    def _election(self, name: str, namespace: str, identity: str) -> Any:
        try:
            from kubernetes import config
            from kubernetes.config.config_exception import ConfigException
            from kubernetes.leaderelection import electionconfig, leaderelection
            from kubernetes.leaderelection.resourcelock import leaselock
        except ImportError:
            raise ClusterError(
                "a lease takes the kubernetes package from 37 on: pip install 'rankscope[cluster]'"
            ) from None
        load: Any = config.load_config
        untyped: Any = (leaselock.LeaseLock, electionconfig.Config, leaderelection.LeaderElection)
        make_lock, settings, election = untyped
        try:
            load()
        except ConfigException as error:
            raise ClusterError(f"no cluster to ask for a lease: {error}") from None
        lock = make_lock(name, namespace, identity)
        lock.api_instance = _Timed(lock.api_instance)
        lock.create, lock.update = self._noted(lock.create), self._noted(lock.update)
        return election(
            settings(
                lock,
                lease_duration=LEASE_SECONDS,
                renew_deadline=RENEW_SECONDS,
                retry_period=RETRY_SECONDS,
                onstarted_leading=lambda: self._say(f"holds lease {namespace}/{name}"),
                onstopped_leading=lambda: self._say(f"lost lease {namespace}/{name}"),
            )
        )

    def _noted(self, attempt: Callable[..., bool]) -> Callable[..., bool]:
        """Return an attempt to get or renew the lease that notes when it succeeded."""

        def noted(*arguments: Any, **named: Any) -> bool:
            began = time.monotonic()
            succeeded = attempt(*arguments, **named)
            if succeeded:  # since before it was asked for: others count from when it was written
                self._renewed = began
            return succeeded

        return noted

    def _run(self, election: Any) -> None:
        from urllib3.exceptions import HTTPError

        while True:
            try:
                election.run()
            except (OSError, HTTPError, ValueError) as error:
                self._say(f"the lease cannot be asked for: {error}")
            time.sleep(RETRY_SECONDS)


class _Timed:
    """The client's API of leases, with an end to each question."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(self._api, name), _request_timeout=RETRY_SECONDS)
