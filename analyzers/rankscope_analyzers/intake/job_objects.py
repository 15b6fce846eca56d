"""A job's pods, and the objects that own them, read with the user's kubeconfig."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope_analyzers.intake.cluster import ClusterAccess, ClusterError, core_api, refused
from rankscope_analyzers.intake.job_pods import pods_of_job
from rankscope_analyzers.workloads.kinds import KINDS, Kind

MAX_PODS = 4096
MAX_OWNERS = 16
MOST_HOPS = 3
"""Levels from a pod: to its Job, to the JobSet, to the TrainJob."""

READ_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class JobObjects:
    """Objects as the API server returns them.

    Args:
        pods: of the job.
        owners: what owns them, and what owns that.
        not_read: what could not be read, as sentences.
    """

    pods: Sequence[Mapping[str, Any]] = ()
    owners: Sequence[Mapping[str, Any]] = ()
    not_read: Sequence[str] = ()


def read(job_id: str, access: ClusterAccess) -> JobObjects:
    """Return what the API server returns for a job; what it refuses is listed."""
    try:
        pods = pods_of_job(job_id, access)[:MAX_PODS]
        owners = _Owners(core_api(access), job_id.partition("/")[0])
        owners.follow(pods)
    except ClusterError as error:
        return JobObjects(not_read=(str(error),))
    return JobObjects(pods, tuple(owners.found.values()), tuple(owners.failures))


class _Owners:
    """Reads owners of objects, each once.

    Args:
        api: Kubernetes' core API, whose connection is used.
        namespace: of the objects.
    """

    def __init__(self, api: Any, namespace: str) -> None:
        from kubernetes import client

        self._api = client.CustomObjectsApi(api.api_client)
        self._namespace = namespace
        self.found: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.failures: list[str] = []

    def follow(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Read the owners of these, and their owners, as far as they are known to be of jobs."""
        for _ in range(MOST_HOPS):
            before = set(self.found)
            for kind, version, name in sorted(set(_owners(objects)), key=str):
                if (kind.resource, name) not in self.found and len(self.found) < MAX_OWNERS:
                    self._read(kind, version, name)
            objects = [one for key, one in self.found.items() if key not in before]

    def _read(self, kind: Kind, version: str, name: str) -> None:
        try:
            with refused(f"get {kind.kind} {name}"):
                found: Any = self._api.get_namespaced_custom_object(
                    *(kind.group, version, self._namespace, kind.plural, name),
                    _request_timeout=READ_SECONDS,
                )
                self.found[kind.resource, name] = found
        except ClusterError as error:
            self.failures.append(str(error))


def _owners(objects: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Kind, str, str]]:
    for one in objects:
        for owner in one.get("metadata", {}).get("ownerReferences") or ():
            group, _, version = str(owner.get("apiVersion", "")).rpartition("/")
            for kind in KINDS:
                if (kind.group, kind.kind) == (group, owner.get("kind")):
                    yield kind, version, str(owner.get("name", ""))
