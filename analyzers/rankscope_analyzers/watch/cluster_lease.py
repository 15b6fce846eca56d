"""Read and write a Lease of the cluster through the Kubernetes client."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.intake.cluster import CURRENT, configured_client, impatient
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.watch.election import LEASE_SECONDS, LeaseError, LeaseRecord

REQUEST_SECONDS = 5
"""Timeout of a request to the API server."""

NOT_FOUND, CONFLICT = 404, 409
MAXIMUM_CHARACTERS = 300


class ClusterLease:
    """A Lease in the cluster.

    Args:
        name: of the Lease.
        namespace: of the Lease.

    Raises:
        rankscope_analyzers.intake.cluster.ClusterError: the API server is not accessible.
    """

    def __init__(self, name: str, namespace: str) -> None:
        self._key = {"name": name, "namespace": namespace}
        self._client, self._api = _client()

    def read(self) -> LeaseRecord | None:
        """Return the lease, None if there is none.

        Raises:
            LeaseError: it cannot be read.
        """
        found = self._request(
            "read",
            lambda: self._api.read_namespaced_lease(**self._key, _request_timeout=REQUEST_SECONDS),
        )
        if found is None:
            return None
        return self._record(found)

    def create(self, holder: str) -> LeaseRecord | None:
        """Create the lease and return it; None if another was faster.

        Raises:
            LeaseError: it cannot be written.
        """
        body = self._client.V1Lease(
            metadata=self._client.V1ObjectMeta(**self._key),
            spec=self._spec(holder, None),
        )
        where = self._key["namespace"]
        made = self._request(
            "created",
            lambda: self._api.create_namespaced_lease(
                where, body, _request_timeout=REQUEST_SECONDS
            ),
        )
        return None if made is None else self._record(made)

    def replace(self, read: LeaseRecord, holder: str) -> LeaseRecord | None:
        """Replace what was read and return the lease; None if it has changed since.

        Raises:
            LeaseError: it cannot be written.
        """
        body: Any = read.stored
        body.spec = self._spec(holder, body.spec)
        renewed = self._request(
            "renewed",
            lambda: self._api.replace_namespaced_lease(
                **self._key, body=body, _request_timeout=REQUEST_SECONDS
            ),
        )
        return None if renewed is None else self._record(renewed)

    def _record(self, found: Any) -> LeaseRecord:
        spec = found.spec or self._client.V1LeaseSpec()
        made = found.metadata.creation_timestamp
        return LeaseRecord(
            str(spec.holder_identity or ""),
            spec.renew_time,
            found,
            spec.lease_transitions or 0,
            0.0 if made is None else made.timestamp(),
        )

    def _spec(self, holder: str, before: Any) -> Any:
        now = datetime.now(timezone.utc)
        # The client omits zero microseconds, and the API server rejects such a time.
        now = now.replace(microsecond=now.microsecond or 1)
        same = before is not None and before.holder_identity == holder
        transitions = 0 if before is None else before.lease_transitions or 0
        return self._client.V1LeaseSpec(
            holder_identity=holder or None,
            lease_duration_seconds=int(LEASE_SECONDS),
            acquire_time=before.acquire_time if same and before.acquire_time else now,
            renew_time=now,
            lease_transitions=transitions if same or not holder else transitions + 1,
        )

    def _request(self, what: str, request: Callable[[], Any]) -> Any:
        """Return the response, None if the lease does not exist or has changed since."""
        from kubernetes.client.exceptions import ApiException
        from kubernetes.config.config_exception import ConfigException
        from urllib3.exceptions import HTTPError

        name = f"the lease {self._key['namespace']}/{self._key['name']}"
        try:
            return request()
        except ApiException as error:
            if error.status == (NOT_FOUND if what == "read" else CONFLICT):
                return None
            reason = _reason(error)
            raise LeaseError(f"{name} cannot be {what}: {reason}") from None
        except (OSError, HTTPError, ValueError, ConfigException) as error:
            why = visible(str(error), MAXIMUM_CHARACTERS)
            raise LeaseError(
                f"{name} cannot be {what}: the API server cannot be reached: {why}"
            ) from None


def _reason(error: Any) -> str:
    """Return status, reason and message in the API server's response."""
    try:
        body = untrusted_json.read(error.body)
        more = str(body["message"])
    except (TypeError, ValueError, KeyError):
        more = ""
    reason = f"{error.status} {error.reason}" + (f": {more}" if more else "")
    return visible(reason, MAXIMUM_CHARACTERS)


def _client() -> tuple[Any, Any]:
    """Return the Kubernetes client and its API for leases.

    Raises:
        ClusterError: it is not installed, or finds no cluster.
    """
    client = configured_client("a lease needs", "to ask for a lease", CURRENT)
    return client, client.CoordinationV1Api(impatient(client))
