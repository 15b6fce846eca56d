"""The location of a rank, according to its pod and container."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope_agent.sources.pods.records import Pod


@dataclass(frozen=True, slots=True)
class RankLocation:
    """The location of a rank; an empty text stands for unknown, or for outside of pods.

    Args:
        pod_created: Unix time at which its pod was created.
        container_started: Unix time at which its container was started.
    """

    pod_namespace: str = ""
    pod_name: str = ""
    container_name: str = ""
    uuid: str = ""
    pod_created: float | None = None
    container_started: float | None = None


def started(pod: Pod, name: str) -> float | None:
    """Return when a container of a pod was started; None if it does not run or has no time."""
    found = (one.started_unix_seconds for one in pod.containers if name and one.name == name)
    return next(found, 0.0) or None


def only_container(pod: Pod) -> str:
    """Return the training container, if unambiguous: the only one with devices, or the only one."""
    with_devices = [container.name for container in pod.containers if container.limits]
    names = with_devices or [container.name for container in pod.containers]
    return names[0] if len(names) == 1 else ""
