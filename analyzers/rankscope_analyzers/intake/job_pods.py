"""A job's pods and their logs, through the API server with the user's kubeconfig.

Each log is first copied to a separate file: merging reads all of them at once, and an API server
closes streams that are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rankscope_analyzers.intake.cluster import (
    ClusterAccess,
    ClusterError,
    core_api,
    pods_of,
    refused,
)

JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "trainer.kubeflow.org/trainjob-name",
    "jobset.sigs.k8s.io/jobset-name",
    "batch.kubernetes.io/job-name",
    "job-name",
    "volcano.sh/job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
    "elasticjob.dlrover/name",
)
"""Labels by which launchers name a pod's job."""

JOB_VARIABLE = "RANKSCOPE_JOB_ID"

MAX_LOG_BYTES = 1 << 30
"""Bytes that are copied of one container's log; kubelets keep 50 MiB of it by default."""

READ_SECONDS = 120.0
"""Seconds that the API server has for one log."""


@dataclass(frozen=True, slots=True)
class PodLog:
    """One log of a container: of the present run, or of the previous one."""

    namespace: str
    pod: str
    container: str
    previous: bool

    @property
    def name(self) -> str:
        """Return the name of the log."""
        return f"{self.pod}/{self.container}{' (previous)' if self.previous else ''}"


def logs_of(job_id: str, access: ClusterAccess) -> Sequence[PodLog]:
    """Return the logs of all containers of a job's pods, of restarted ones the previous first.

    Args:
        job_id: namespace/name, or the name of a pod instead of the job's.
        access: to which cluster, and how.

    Raises:
        ClusterError: there is no such pod, or the API server refuses.
    """
    pods = pods_of_job(job_id, access)
    namespace = job_id.partition("/")[0]
    return tuple(log for pod in pods for log in _logs(namespace, pod))


def pods_of_job(job_id: str, access: ClusterAccess) -> Sequence[Mapping[str, Any]]:
    """Return the pods of a job as JSON, by their names.

    Args:
        job_id: namespace/name, or the name of a pod instead of the job's.
        access: to which cluster, and how.

    Raises:
        ClusterError: there is no such pod, or the API server refuses.
    """
    namespace, slash, name = job_id.partition("/")
    if not slash:
        raise ClusterError(
            f"a job in a cluster is called namespace/name, not {job_id!r}; {access.instead}"
            " for a job outside Kubernetes"
        )
    pods = [pod for pod in pods_of(namespace, access) if _is_of(pod, namespace, name)]
    if not pods:
        raise ClusterError(f"no pod of job {job_id} in namespace {namespace}")
    return sorted(pods, key=_name)


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod.get("metadata", {}).get("name", ""))


def _is_of(pod: Mapping[str, Any], namespace: str, name: str) -> bool:
    metadata, spec = pod.get("metadata", {}), pod.get("spec", {})
    labels = metadata.get("labels") or {}
    owners = {str(owner.get("name")) for owner in metadata.get("ownerReferences") or ()}
    stated = {
        str(variable.get("value"))
        for container in spec.get("containers") or ()
        for variable in container.get("env") or ()
        if variable.get("name") == JOB_VARIABLE
    }
    named = {str(labels[key]) for key in JOB_LABELS if key in labels} | owners | {_name(pod)}
    return name in named or bool(stated & {name, f"{namespace}/{name}"})


def _logs(namespace: str, pod: Mapping[str, Any]) -> Iterator[PodLog]:
    status = pod.get("status", {})
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            name, state = str(container.get("name", "")), container.get("state") or {}
            if int(container.get("restartCount") or 0) > 0:
                yield PodLog(namespace, _name(pod), name, previous=True)
            if "running" in state or "terminated" in state:
                yield PodLog(namespace, _name(pod), name, previous=False)


@dataclass(frozen=True, slots=True)
class Copied:
    """Logs as files by their names, and sentences about those that could not be read."""

    files: Mapping[str, Path]
    failures: Sequence[str]


@contextmanager
def copied(
    logs: Sequence[PodLog], access: ClusterAccess, since_seconds: int | None, tail: int | None
) -> Iterator[Copied]:
    """Copy logs into a directory that is deleted with the context.

    Args:
        logs: to copy.
        access: to which cluster, and how.
        since_seconds: how far back; None for all.
        tail: number of last lines of each; None for all.

    Raises:
        ClusterError: the API server is not accessible.
    """
    api = core_api(access)
    with TemporaryDirectory(prefix="rankscope-logs-") as folder:
        files: dict[str, Path] = {}
        failures = []
        for number, log in enumerate(logs):
            path = Path(folder) / f"{number}.log"
            try:
                with refused(f"get the log of pod {log.name}"):
                    cut = _copy(api, log, path, since_seconds, tail)
            except ClusterError as error:
                failures.append(f"{error}")
                continue
            files[log.name] = path
            if cut:
                failures.append(f"{log.name}: only its first {MAX_LOG_BYTES >> 20} MiB were read")
        yield Copied(files, tuple(failures))


def _copy(api: Any, log: PodLog, path: Path, since_seconds: int | None, tail: int | None) -> bool:
    """Copy one log; return True if it was cut off."""
    limits = {"since_seconds": since_seconds, "tail_lines": tail}
    answer = api.read_namespaced_pod_log(
        log.pod,
        log.namespace,
        container=log.container,
        previous=log.previous,
        timestamps=True,
        _preload_content=False,
        _request_timeout=READ_SECONDS,
        **{key: value for key, value in limits.items() if value is not None},
    )
    written = 0
    with path.open("wb") as sink:
        for piece in answer.stream(1 << 16):
            sink.write(piece)
            written += len(piece)
            if written >= MAX_LOG_BYTES:
                answer.close()
                return True
    return False
