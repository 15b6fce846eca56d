"""Why pods wait, fail or are evicted: closed vocabularies, because they are used as labels.

The words are those that `kubectl get pods` shows, so that people find them in Kubernetes' own
documentation; `Init:` is prepended if it happens to an init container.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping

INIT = "Init:"
OTHER = "other"

CRASH_LOOP = "CrashLoopBackOff"
IMAGE_PULL = "ImagePullBackOff"
CREATING, INITIALIZING = "ContainerCreating", "PodInitializing"

IMAGE_FAULTS = (IMAGE_PULL, "InvalidImageName", "ErrImageNeverPull")
"""Waiting reasons of containers whose image cannot be pulled."""

CREATION_FAULTS = ("CreateContainerConfigError", "CreateContainerError")
"""Waiting reasons of containers that cannot be created: a secret, a config map or a volume is
missing, or the runtime rejects the pod's specification."""

STARTING = (CREATING, INITIALIZING)
"""Waiting reasons of every pod that starts."""

WAITING: Mapping[str, str] = {
    **{reason: reason for reason in (CRASH_LOOP, *IMAGE_FAULTS, *CREATION_FAULTS, *STARTING)},
    # The kubelet alternates between the failed pull and the back-off after it: to people, one
    # state.
    **dict.fromkeys(
        ("ErrImagePull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"),
        IMAGE_PULL,
    ),
    "RunContainerError": "RunContainerError",
}
"""Reasons of waiting containers (kubelet pkg/kubelet/kuberuntime and pkg/kubelet/images/types.go),
and the name of each of them here."""

OOM_KILLED, ERROR = "OOMKilled", "Error"

TERMINATED: Mapping[str, str] = {
    reason: reason
    for reason in (
        *(OOM_KILLED, ERROR, "ContainerCannotRun", "StartError", "DeadlineExceeded"),
        "ContainerStatusUnknown",
    )
}
"""Reasons of containers that ended with a failure."""

EVICTED = "Evicted"
DISRUPTED = "DisruptionTarget"

POD_FAILURES: Mapping[str, str] = {
    **{
        reason: reason
        for reason in (
            *(EVICTED, "Preempting", "NodeShutdown", "NodeLost", "NodeAffinity"),
            *("DeadlineExceeded", "UnexpectedAdmissionError", "TopologyAffinityError"),
        )
    },
    # Written since Kubernetes 1.22 by a kubelet that shuts its node down gracefully.
    "Terminated": "NodeShutdown",
    "Shutdown": "NodeShutdown",
}
"""Reasons of pods that failed as a whole (kubelet pkg/kubelet/{eviction,lifecycle,nodeshutdown});
those that begin with OutOf name a resource that the node lacked."""

OUT_OF = "OutOf"
OUT_OF_RESOURCE = "OutOfResource"

PREEMPTIONS = (DISRUPTED, "Preempting")
"""Reasons of pods that had to make way for others, through no fault of their own."""

DISRUPTIONS = frozenset(
    (
        *("PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI"),
        *("DeletionByPodGC", "TerminationByKubelet"),
    )
)
"""Reasons of the condition DisruptionTarget (k8s.io/api/core/v1/types.go)."""

NO_FAULT = "completed"
NOT_EXECUTABLE, NOT_FOUND = 126, 127
SIGNALLED = 128
"""Shells and runtimes add this to the number of the signal that ended a process."""

_MAX_APPLICATION = 125
_CLASSES: Mapping[int, str] = {
    0: NO_FAULT,
    NOT_EXECUTABLE: "not_executable",
    NOT_FOUND: "not_found",
    **{
        SIGNALLED + number: number.name.lower()
        for number in (
            *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGINT),
            *(signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM),
        )
    },
}
_MAX_SIGNAL = 64


def exit_class(code: int) -> str:
    """Return whether an exit code stems from a signal, the application or the runtime."""
    found = _CLASSES.get(code)
    if found:
        return found
    if SIGNALLED < code <= SIGNALLED + _MAX_SIGNAL:
        return "signal"
    return "application" if 0 < code <= _MAX_APPLICATION else OTHER


def with_init(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return the reasons of containers together with those of init containers."""
    chosen = tuple(reasons)
    return (*chosen, *(INIT + reason for reason in chosen))
