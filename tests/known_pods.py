"""Pods of which nothing is known but what they are called, as of a node without an API server."""

from __future__ import annotations

from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.log_directories import PodIdentity


def pods_of(namespace: str = "team") -> PodDirectory:
    """Return a directory in which every pod is of one namespace."""
    directory = PodDirectory()
    directory.fall_back_on(lambda uid: PodIdentity(namespace, f"pod-{uid}"))
    return directory


def pods_named_after_their_namespace() -> PodDirectory:
    """Return a directory in which a pod's uid begins with its namespace, as in team-late."""
    names = PodDirectory()
    names.fall_back_on(lambda uid: PodIdentity(uid.partition("-")[0], uid))
    return names
