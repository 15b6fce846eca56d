"""Reads and writes a Lease of the cluster through Kubernetes' client."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.intake.cluster import ClusterError, configure, impatient
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.watch.election import LEASE_SECONDS, Held, LeaseError

REQUEST_SECONDS = 5
"""Time that the API server has to answer; it is asked again as soon as that has passed."""

NOT_FOUND, CONFLICT = 404, 409
MOST_CHARACTERS = 300


class ClusterLease:
    """One Lease.

    Args:
        name: of the Lease.
        namespace: where it is.

    Raises:
        rankscope_analyzers.intake.cluster.ClusterError: there is no way to the API server.
    """

    def __init__(self, name: str, namespace: str) -> None:
        self._place = {"name": name, "namespace": namespace}
        self._client, self._api = _client()

    def read(self) -> Held | None:
        """Return the lease, None if there is none.

        Raises:
            LeaseError: it cannot be read.
        """
        found = self._ask(
            "read",
            lambda: self._api.read_namespaced_lease(
                **self._place, _request_timeout=REQUEST_SECONDS
            ),
        )
        if found is None:
            return None
        spec = found.spec or self._client.V1LeaseSpec()
        return Held(str(spec.holder_identity or ""), spec.renew_time, found)

    def create(self, holder: str) -> bool:
        """Write a lease where there is none; False if another was faster.

        Raises:
            LeaseError: it cannot be written.
        """
        body = self._client.V1Lease(
            metadata=self._client.V1ObjectMeta(**self._place),
            spec=self._spec(holder, None),
        )
        where = self._place["namespace"]
        made = self._ask(
            "created",
            lambda: self._api.create_namespaced_lease(
                where, body, _request_timeout=REQUEST_SECONDS
            ),
        )
        return made is not None

    def replace(self, read: Held, holder: str) -> bool:
        """Write over what was read; False if it is not what is there any longer.

        Raises:
            LeaseError: it cannot be written.
        """
        body: Any = read.stored
        body.spec = self._spec(holder, body.spec)
        made = self._ask(
            "renewed",
            lambda: self._api.replace_namespaced_lease(
                **self._place, body=body, _request_timeout=REQUEST_SECONDS
            ),
        )
        return made is not None

    def _spec(self, holder: str, before: Any) -> Any:
        now = datetime.now(timezone.utc)
        # The client leaves off microseconds that are none, and the API server refuses that.
        now = now.replace(microsecond=now.microsecond or 1)
        same = before is not None and before.holder_identity == holder
        turns = 0 if before is None else before.lease_transitions or 0
        return self._client.V1LeaseSpec(
            holder_identity=holder or None,
            lease_duration_seconds=int(LEASE_SECONDS),
            acquire_time=before.acquire_time if same and before.acquire_time else now,
            renew_time=now,
            lease_transitions=turns if same or not holder else turns + 1,
        )

    def _ask(self, what: str, question: Callable[[], Any]) -> Any:
        """Return an answer, None where the lease is not there or is not what was read."""
        from kubernetes.client.exceptions import ApiException
        from kubernetes.config.config_exception import ConfigException
        from urllib3.exceptions import HTTPError

        name = f"the lease {self._place['namespace']}/{self._place['name']}"
        try:
            return question()
        except ApiException as error:
            if error.status == (NOT_FOUND if what == "read" else CONFLICT):
                return None
            said = _reason(error)
            raise LeaseError(f"{name} cannot be {what}: {said}") from None
        except (OSError, HTTPError, ValueError, ConfigException) as error:
            why = visible(str(error), MOST_CHARACTERS)
            raise LeaseError(
                f"{name} cannot be {what}: the API server cannot be reached: {why}"
            ) from None


def _reason(error: Any) -> str:
    """Return code and reason, and what the API server says beside them."""
    try:
        body = untrusted_json.read(error.body)
        more = str(body["message"])
    except (TypeError, ValueError, KeyError):
        more = ""
    said = f"{error.status} {error.reason}" + (f": {more}" if more else "")
    return visible(said, MOST_CHARACTERS)


def _client() -> tuple[Any, Any]:
    """Return Kubernetes' client and its API of leases.

    Raises:
        ClusterError: it is not installed, or finds no cluster.
    """
    try:
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException
    except ImportError:
        raise ClusterError(
            "a lease takes the kubernetes package: pip install 'rankscope[cluster]'"
        ) from None
    untyped: Any = client
    try:
        configure(config)
    except ConfigException as error:
        raise ClusterError(f"no cluster to ask for a lease: {error}") from None
    return untyped, untyped.CoordinationV1Api(impatient(untyped))
