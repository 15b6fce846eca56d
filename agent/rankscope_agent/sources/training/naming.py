"""Who knows what the jobs of a node's pods are called; rings are read by that."""

from __future__ import annotations

from typing import Protocol

from rankscope_agent.contract.job_names import PodJob
from rankscope_agent.sources.pods.job_owners import OwnedFile


class JobNames(Protocol):
    """Who knows what the jobs of this node's pods are called."""

    @property
    def pending(self) -> bool:
        """Return True if that is still to be learnt, so that pods' rings had better wait."""
        ...

    def namespace_of_pod(self, pod_uid: str) -> str:
        """Return the namespace of a pod, empty while it is not known."""
        ...

    def of_pod(self, pod_uid: str, stated: str) -> PodJob | None:
        """Name the job of a pod whose processes call it `stated`, None where the pod is not known.

        Raises:
            JobNameError: Kubernetes has no name for it, and the pod may not have this one.
        """
        ...

    def check_outside(self, pod_uid: str, stated: str, file: OwnedFile | None = None) -> None:
        """Refuse what a process that is in no pod's volume may not say of itself.

        Args:
            pod_uid: the pod that it says it is in, mostly empty.
            stated: what it calls its job.
            file: its ring, if it has one.

        Raises:
            JobNameError: it speaks for a pod, for a job of pods, or for another user's job.
        """
        ...

    def is_locked_by_other(self, file: OwnedFile) -> bool:
        """Return True if somebody else than its writer holds the lock of a ring outside of pods."""
        ...


class _NoPods:
    """No pods are known: jobs have the names that their processes give them."""

    pending = False

    def namespace_of_pod(self, pod_uid: str) -> str:
        return ""

    def of_pod(self, pod_uid: str, stated: str) -> PodJob | None:
        return None

    def check_outside(self, pod_uid: str, stated: str, file: OwnedFile | None = None) -> None:
        return

    def is_locked_by_other(self, file: OwnedFile) -> bool:
        return False


NO_PODS: JobNames = _NoPods()
