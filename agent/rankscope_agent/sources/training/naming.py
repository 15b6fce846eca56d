"""The interface to the names of the jobs of a node's pods, which reading rings depends on."""

from __future__ import annotations

from typing import Protocol

from rankscope_agent.contract.job_names import PodJob
from rankscope_agent.sources.pods.job_owners import OwnedFile


class JobNames(Protocol):
    """Provides the names of the jobs of this node's pods."""

    @property
    def pending(self) -> bool:
        """Return True if names are still to come, so that pods' rings should wait."""
        ...

    def namespace_of_pod(self, pod_uid: str) -> str:
        """Return the namespace of a pod; empty while unknown."""
        ...

    def job_of(self, pod_uid: str) -> str | None:
        """Return the job of a pod in Kubernetes; None while unknown, and if it has none there."""
        ...

    def of_pod(self, pod_uid: str, stated: str) -> PodJob | None:
        """Return the job of a pod whose processes call it `stated`; None if the pod is unknown.

        Raises:
            JobNameError: Kubernetes has no name for it, and the pod may not use this one.
        """
        ...

    def check_outside(self, pod_uid: str, stated: str, file: OwnedFile | None = None) -> None:
        """Reject claims that a process outside of pods' volumes may not make.

        Args:
            pod_uid: the pod that it claims to be in; usually empty.
            stated: its name for its job.
            file: its ring, if it has one.

        Raises:
            JobNameError: it claims a pod, a job of pods, or another user's job.
        """
        ...

    def is_locked_by_other(self, file: OwnedFile) -> bool:
        """Return True if someone other than its writer holds the lock of a ring outside of pods."""
        ...


class _NoPods:
    """No pods are known: jobs have the names that their processes give them."""

    pending = False

    def namespace_of_pod(self, pod_uid: str) -> str:
        return ""

    def job_of(self, pod_uid: str) -> str | None:
        return None

    def of_pod(self, pod_uid: str, stated: str) -> PodJob | None:
        return None

    def check_outside(self, pod_uid: str, stated: str, file: OwnedFile | None = None) -> None:
        return

    def is_locked_by_other(self, file: OwnedFile) -> bool:
        return False


NO_PODS: JobNames = _NoPods()
